#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/cli/command.h"
#include "mantissa/cli/prepare.h"
#include "mantissa/cli/settings.h"
#include "mantissa/cli/why_report.h"

namespace mantissa::cli {
namespace {

struct Options {
  std::string run_file;
  std::optional<std::string> precision;
  std::optional<std::string> policy;
  int64_t steps = 12;
  int64_t rows = 15;
  std::vector<std::string> settings;
  bool json = false;
};

bool is_16_bits(const std::string& precision) { return precision == "bf16" || precision == "fp16"; }

// That of --precision, of the run file where it is one of 16 bits, or bf16.
std::string narrow_precision(const Options& options, const std::vector<train::Setting>& settings) {
  std::string precision = options.precision.value_or("");
  if (precision.empty()) {
    // In FP32 some settings would have no effect.
    const std::string of_file =
        train::load_run_configs(options.run_file, settings, {{}, {{"precision.compute", "fp16"}}})
            .front()
            .precision.compute;
    precision = is_16_bits(of_file) ? of_file : "bf16";
  }
  MANTISSA_CHECK(is_16_bits(precision), InvalidArgument, "why: --precision is \"", precision,
                 "\", which has no 16 bits; valid: bf16 fp16");
  return precision;
}

void run_why(const Options& options) {
  const std::vector<train::Setting> settings =
      settings_of(options.settings, {{"precision.policy", options.policy}});
  const std::string narrow = narrow_precision(options, settings);
  const std::vector<train::RunConfig> configs =
      train::load_run_configs(options.run_file, settings,
                              {{{"precision.compute", "fp32"}}, {{"precision.compute", narrow}}});
  prepare_process();
  std::cerr << "why: " << options.steps << " steps in fp32 and in " << narrow
            << ", in turns, then the machine itself\n";
  train::TimedPair pair = train::time_pair(configs[0], configs[1], options.steps);
  monitor::Roofline roofline =
      monitor::measure_roofline({numerics::Format::fp32, numerics::parse_format(narrow)});
  const Why why = explain(options.run_file, std::move(pair), std::move(roofline));
  std::cout << (options.json ? json_of(why) + "\n"
                             : text_of(why, static_cast<size_t>(options.rows)));
}

}  // namespace

void add_why(CLI::App& app, int& /*exit_code*/) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "why", "Why a run in 16 bits is not faster than in FP32: where its time goes, by operation");
  command->add_option("RUN.toml", options->run_file, "run file")->required();
  command->add_option("--precision", options->precision,
                      "bf16 or fp16 (default: that of the run file if it has 16 bits, else bf16)");
  command->add_option("--policy", options->policy, "a policy's name or file");
  command
      ->add_option("--steps", options->steps,
                   "timed steps of each, a multiple of 6, the number of turns")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--rows", options->rows, "of the table of operations")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--set", options->settings, "KEY=VALUE, any key of the run file; repeatable")
      ->allow_extra_args(false);
  command->add_flag("--json", options->json, "all of it as one JSON object, the last line");
  command->footer(
      "Trains a few steps in both precisions, in turns, and writes nothing. Predicted is what the\n"
      "machine's rates of products and bytes, measured at the end, would let an operation gain.\n"
      "  mantissa why recipes/lambda.toml\n"
      "  mantissa why recipes/lessons/few-tokens.toml --precision bf16");
  command->callback([options] { run_why(*options); });
}

}  // namespace mantissa::cli
