#include <filesystem>
#include <iostream>
#include <memory>
#include <set>
#include <sstream>

#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/cli/command.h"
#include "mantissa/cli/divergence.h"
#include "mantissa/cli/prepare.h"
#include "mantissa/cli/progress_display.h"
#include "mantissa/cli/settings.h"
#include "mantissa/cli/stop_signals.h"
#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/report/comparison.h"
#include "mantissa/tensor/memory.h"
#include "mantissa/train/loop.h"
#include "mantissa/train/machine.h"
#include "mantissa/train/run_folder.h"

namespace mantissa::cli {
namespace {

struct Options {
  std::string run_file;
  std::vector<std::string> precisions = {"fp32", "bf16", "fp16"};
  std::string out;
  std::vector<std::string> settings;
  bool json = false;
};

// What to expect of 16 bits on this processor.
std::string hardware_sentence() {
  std::string without;
  for (const ops::CpuKernelChoice& choice : ops::cpu_kernel_choices()) {
    if (choice.kernels == ops::CpuKernels::ours) {
      without += concat(without.empty() ? "" : " and ", numerics::to_string(choice.format));
    }
  }
  return train::cpu_description() +
         (without.empty() ? ": it has 16-bit units, expect less memory and more speed"
                          : ": no units for " + without + ", expect less memory, not more speed");
}

// `a,b` is a and b.
std::vector<std::string> split_at_commas(const std::vector<std::string>& texts) {
  std::vector<std::string> names;
  for (const std::string& text : texts) {
    std::istringstream parts(text + ",");
    for (std::string name; std::getline(parts, name, ',');) {
      MANTISSA_CHECK(!name.empty(), InvalidArgument, "--precisions: \"", text,
                     "\" has an empty name; write one comma between two names");
      names.push_back(name);
    }
  }
  return names;
}

// A run that is there already is continued, so that an interrupted comparison can be repeated.
train::LoopOutcome start_or_resume(const train::RunConfig& config,
                                   const std::filesystem::path& folder,
                                   const train::LoopOptions& options) {
  if (!std::filesystem::exists(folder / "run.toml")) {
    return train::start_run(config, folder, options);
  }
  const train::RunConfig there = train::load_run(folder);
  train::RunConfig expected = config;
  if (config.train.microbatch == train::kAutoMicrobatch) {
    expected.train.microbatch = there.train.microbatch;
  }
  MANTISSA_CHECK(train::to_toml(there) == train::to_toml(expected), InvalidArgument,
                 folder.string(), ": holds a run with other settings; choose another --out");
  return train::resume_run(folder, options);
}

void run_compare(const Options& options, int& exit_code) {
  const std::atomic<int>& stop = stop_flag();
  std::set<std::string> seen;
  std::vector<train::Setting> precisions;
  for (const std::string& precision : split_at_commas(options.precisions)) {
    MANTISSA_CHECK(seen.insert(precision).second, InvalidArgument, "--precisions: \"", precision,
                   "\" is named twice; name each once");
    precisions.push_back({"precision.compute", precision});
  }
  const std::vector<train::RunConfig> configs =
      train::load_run_configs(options.run_file, settings_of(options.settings, {}), precisions);

  prepare_process();
  std::vector<record::Summary> summaries;
  for (const train::RunConfig& config : configs) {
    const std::filesystem::path folder =
        std::filesystem::path(options.out) / config.precision.compute;
    std::cerr << "compare: " << config.precision.compute << " in " << folder.string() << "\n";
    ProgressDisplay display(config.train.steps);
    train::LoopOptions loop;
    loop.stop = &stop;
    loop.observe = [&](const record::Event& event) { display.show(event); };
    // Each run's peak is its own.
    tensor::memory::reset_peak();
    const train::LoopOutcome outcome = start_or_resume(config, folder, loop);
    if (outcome.ending == train::Ending::interrupted) {
      std::cerr << "mantissa: interrupted, state saved in " << options.out
                << "; the same command goes on\n";
      exit_code = kSavedRunAgain;
      return;
    }
    if (report_divergence(config, outcome, folder)) {
      exit_code = kFailed;
    }
    summaries.push_back(outcome.summary);
  }
  if (options.json) {
    nlohmann::ordered_json json;
    json["hardware"] = hardware_sentence();
    for (const record::Summary& summary : summaries) {
      json["runs"].push_back(nlohmann::ordered_json::parse(record::to_json(summary)));
    }
    std::cout << json.dump() << "\n";
    return;
  }
  std::cout << report::comparison_table(summaries) << "\n"
            << hardware_sentence() << "\n"
            << report::slower_lines(summaries) << report::larger_lines(summaries);
}

}  // namespace

void add_compare(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "compare", "Train a run file in several precisions, same seed and batches, and compare");
  command->add_option("RUN.toml", options->run_file, "run file")->required();
  command->add_option("--precisions", options->precisions,
                      "comma-separated: fp32,tf32,bf16,fp16 (default: fp32,bf16,fp16)");
  command
      ->add_option("--out", options->out,
                   "folder; each run gets one in it, and goes on if it is there already")
      ->required()
      ->check(refuse_empty_folder);
  command->add_option("--set", options->settings, "KEY=VALUE, over the run file; may be repeated")
      ->allow_extra_args(false);
  command->add_flag("--json", options->json, "one JSON object, the last line of stdout");
  command->callback([options, &exit_code] { run_compare(*options, exit_code); });
}

}  // namespace mantissa::cli
