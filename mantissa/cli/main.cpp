#include <algorithm>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>

#include "mantissa/base/error.h"
#include "mantissa/base/nearest.h"
#include "mantissa/cli/command.h"

namespace mantissa::cli {
namespace {

int report(const std::string& message, int exit_code) {
  std::cerr << "mantissa: " << message << "\n";
  return exit_code;
}

// LibTorch's messages carry a stack trace after their first line.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

constexpr const char* kOutOfMemory =
    "out of memory; use a smaller train.batch, train.microbatch, model or context";

// LibTorch has a kind for devices alone.
bool is_out_of_memory(const c10::Error& error, const std::string& message) {
  return dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
         message.find("allocate memory") != std::string::npos;
}

// CLI11 says "A subcommand is required" also for a misspelt one.
std::string usage_error(const CLI::App& app, int argc, char** argv, const CLI::ParseError& error) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) {
    names.push_back(command->get_name());
  }
  const std::string first = argc > 1 ? argv[1] : "";
  if (!first.empty() && first[0] != '-' &&
      std::find(names.begin(), names.end(), first) == names.end()) {
    return concat("unknown command \"", first, "\"", suggestion(first, names));
  }
  return concat(first.empty() ? "" : first + ": ", first_line(error.what()), "; see mantissa ",
                first.empty() || first[0] == '-' ? "" : first + " ", "--help");
}

// `-inf` and `-nan` are values, not options; what stands behind a bare "--" is taken for a value.
std::vector<std::string> with_negative_values_last(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto value = std::find_if(arguments.begin(), arguments.end(), [](const std::string& text) {
    return text == "-inf" || text == "-infinity" || text == "-nan";
  });
  if (value != arguments.end()) {
    const std::string text = *value;
    arguments.erase(value);
    arguments.insert(arguments.end(), {"--", text});
  }
  return arguments;
}

int run(int argc, char** argv) {
  CLI::App app("Mixed precision training: train in 16 bits what you would have trained in 32.",
               "mantissa");
  app.set_version_flag("--version", "mantissa " MANTISSA_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Results go to stdout, progress and messages to stderr. Exit codes: 0 done, 1 failed or a\n"
      "file that cannot be read (lint: hazards), 2 wrong usage or input (lint: also failed), 3 a "
      "gate\n"
      "of compare --require was not met or a plan fits nowhere, 75 interrupted and saved (train: "
      "go on with --resume;\n"
      "compare, score: repeat).");
  int exit_code = kDone;
  const auto fail = [&](const std::string& message) {
    return report(message, exit_code == kDone ? kFailed : exit_code);
  };
  for (const auto add : {add_train, add_eval, add_score, add_compare, add_why, add_report, add_plan,
                         add_inspect, add_lint, add_policy, add_numerics, add_doctor}) {
    add(app, exit_code);
  }
  try {
    std::vector<std::string> arguments = with_negative_values_last(argc, argv);
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants a vector
    app.parse(std::move(arguments));
    std::cout.flush();
    if (!std::cout) {
      return report("stdout: cannot be written; is the disk full?",
                    app.got_subcommand("lint") ? kWrongUsage : kFailed);
    }
    return exit_code;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help, --version
      app.exit(error);
      std::cout.flush();
      return std::cout ? kDone : report("stdout: cannot be written; is the disk full?", kFailed);
    }
    return report(usage_error(app, argc, argv, error), kWrongUsage);
  } catch (const InvalidArgument& error) {
    return report(error.what(), kWrongUsage);
  } catch (const Error& error) {
    return fail(error.what());
  } catch (const c10::Error& error) {
    const std::string message = first_line(error.what_without_backtrace());
    return fail(is_out_of_memory(error, message) ? kOutOfMemory : "LibTorch: " + message);
  } catch (const std::bad_alloc&) {
    return fail(kOutOfMemory);
  } catch (const std::exception& error) {
    return fail(first_line(error.what()));
  }
}

}  // namespace
}  // namespace mantissa::cli

int main(int argc, char** argv) { return mantissa::cli::run(argc, argv); }
