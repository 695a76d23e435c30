#include <iostream>
#include <memory>
#include <optional>

#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/cli/command.h"
#include "mantissa/cli/prepare.h"
#include "mantissa/cli/settings.h"
#include "mantissa/monitor/lint.h"
#include "mantissa/train/lint_run.h"

namespace mantissa::cli {
namespace {

using monitor::Severity;
using nlohmann::ordered_json;

struct Options {
  std::string run_file;
  std::optional<std::string> precision;
  std::optional<std::string> policy;
  std::vector<std::string> settings;
  bool rules = false;
  bool json = false;
};

void run_rules(bool as_json) {
  ordered_json json = ordered_json::array();
  for (const monitor::LintRule& rule : monitor::lint_rules()) {
    json.push_back({{"name", rule.name}, {"checks", rule.checks}, {"source", rule.source}});
    if (!as_json) {
      std::cout << rule.name << ": " << rule.checks << "\n  source: " << rule.source << "\n";
    }
  }
  if (as_json) {
    std::cout << json.dump() << "\n";
  }
}

train::RunConfig load(const Options& options) {
  return train::load_run_config(
      options.run_file, settings_of(options.settings, {{"precision.compute", options.precision},
                                                       {"precision.policy", options.policy}}));
}

ordered_json json_of(const monitor::LintReport& report) {
  ordered_json findings = ordered_json::array();
  for (const monitor::Finding& finding : report.findings) {
    findings.push_back({{"rule", finding.rule},
                        {"severity", std::string(to_string(finding.severity))},
                        {"scope", finding.scope},
                        {"operation", finding.operation},
                        {"format", finding.format},
                        {"value", finding.value},
                        {"consequence", finding.consequence},
                        {"remedy", finding.remedy},
                        {"count", finding.count},
                        {"of_values", finding.of_values}});
  }
  return {{"findings", findings},
          {"hazards", report.num(Severity::hazard)},
          {"notes", report.num(Severity::note)},
          {"calls", report.calls},
          {"stopped", report.stopped}};
}

void print(const monitor::LintReport& report) {
  for (const monitor::Finding& finding : report.findings) {
    std::cout << to_string(finding) << "\n";
  }
  if (!report.stopped.empty()) {
    std::cout << "the step stopped: " << report.stopped << "\n";
  }
  const auto counted = [](int64_t number, const char* what) {
    return concat(number, " ", what, number == 1 ? "" : "s");
  };
  std::cout << counted(report.num(Severity::hazard), "hazard") << ", "
            << counted(report.num(Severity::note), "note") << " in " << report.calls
            << " calls of one step\n";
}

void run_lint(const Options& options, int& exit_code) {
  exit_code = kWrongUsage;  // of whatever fails: 1 says hazards alone
  if (options.rules) {
    MANTISSA_CHECK(options.run_file.empty(), InvalidArgument,
                   "lint: --rules lists the rules and takes no run file");
    run_rules(options.json);
    exit_code = kDone;
    return;
  }
  MANTISSA_CHECK(!options.run_file.empty(), InvalidArgument, "lint: name a run file, or --rules");
  const train::RunConfig config = load(options);
  prepare_process();
  const monitor::LintReport report = train::lint_run(config);
  if (options.json) {
    std::cout << json_of(report).dump() << "\n";
  } else {
    print(report);
  }
  exit_code = report.num(Severity::hazard) > 0 || !report.stopped.empty() ? kFailed : kDone;
}

}  // namespace

void add_lint(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "lint", "Check one training step of a run for precision hazards, with what to do about each");
  command->add_option("RUN.toml", options->run_file, "the run file");
  command->add_option("--precision", options->precision, "fp32, tf32, bf16 or fp16");
  command->add_option("--policy", options->policy, "a policy's name or file");
  command->add_option("--set", options->settings, "KEY=VALUE, any key of the run file; repeatable")
      ->allow_extra_args(false);
  command->add_flag("--rules", options->rules, "list the rules and their sources");
  command->add_flag("--json", options->json, "as JSON, the last line of stdout");
  command->footer(
      "Exit codes: 0 no hazard (notes change no result and do not count), 1 hazards, or a step\n"
      "that a hazard stopped, 2 wrong usage or input, or a failure such as a missing file.");
  command->callback([options, &exit_code] { run_lint(*options, exit_code); });
}

}  // namespace mantissa::cli
