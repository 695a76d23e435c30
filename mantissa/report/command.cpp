#include "mantissa/report/command.h"

#include <filesystem>
#include <limits>
#include <utility>

#include "mantissa/base/error.h"
#include "mantissa/report/html_page.h"
#include "mantissa/report/quantity.h"
#include "mantissa/report/report.h"

namespace mantissa::report {
namespace {

std::string text_of(const Report& report, const CommandOptions& options) {
  constexpr size_t kAllRows = std::numeric_limits<size_t>::max();
  if (options.csv) {
    return to_csv(table_of(report, options.table.empty() ? "runs" : options.table));
  }
  if (options.json) {
    return (options.table.empty() ? to_json(report) : to_json(table_of(report, options.table))) +
           "\n";
  }
  if (!options.table.empty()) {
    return to_text(table_of(report, options.table), kAllRows);
  }
  return options.output.empty() ? to_text(report) : "";
}

}  // namespace

CommandResult run_command(const CommandOptions& options, const std::string& program,
                          FileSystem& files) {
  const std::filesystem::path output = options.output;
  MANTISSA_CHECK(options.output.empty() || output.extension() == ".html", InvalidArgument, "-o \"",
                 options.output, "\": is no name of a page; name a file that ends in .html");
  Runs runs = read_runs({options.runs.begin(), options.runs.end()}, files);
  CommandResult result;
  result.messages = std::move(runs.warnings);
  const Report report = make_report(std::move(runs.runs));
  result.text = text_of(report, options);
  if (!options.output.empty()) {
    std::string command = program;
    for (const std::string& run : options.runs) {
      command += " " + run;
    }
    const std::string page = to_html(report, command + " -o " + options.output);
    replace_file(output, page, files);
    result.messages.push_back(
        concat("wrote ", options.output, ", ", bytes_text(static_cast<int64_t>(page.size()))));
  }
  return result;
}

}  // namespace mantissa::report
