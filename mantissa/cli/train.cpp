#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include "mantissa/base/error.h"
#include "mantissa/cli/command.h"
#include "mantissa/cli/divergence.h"
#include "mantissa/cli/prepare.h"
#include "mantissa/cli/progress_display.h"
#include "mantissa/cli/settings.h"
#include "mantissa/cli/stop_signals.h"
#include "mantissa/report/comparison.h"
#include "mantissa/train/loop.h"

namespace mantissa::cli {
namespace {

struct Options {
  std::string run_file;
  std::string resume;
  std::string out;
  std::optional<std::string> precision;
  std::optional<std::string> policy;
  std::optional<std::string> microbatch;
  std::optional<std::string> memory;
  std::optional<std::string> recompute;
  std::vector<std::string> settings;
  bool json = false;
  bool help_keys = false;
};

std::vector<train::Setting> all_settings(const Options& options) {
  return settings_of(options.settings, {{"precision.compute", options.precision},
                                        {"precision.policy", options.policy},
                                        {"train.microbatch", options.microbatch},
                                        {"train.memory", options.memory},
                                        {"train.recompute", options.recompute}});
}

// runs/<name of the run file>-<precision>, the first of -2, -3, ... that is free.
std::filesystem::path default_folder(const std::string& run_file, const std::string& precision) {
  const std::filesystem::path base =
      std::filesystem::path("runs") /
      (std::filesystem::path(run_file).stem().string() + "-" + precision);
  std::filesystem::path folder = base;
  for (int i = 2; std::filesystem::exists(folder); ++i) {
    folder = base.string() + "-" + std::to_string(i);
  }
  return folder;
}

void run_train(const Options& options, int& exit_code) {
  const std::atomic<int>& stop = stop_flag();  // from here on a signal saves before it ends
  if (options.help_keys) {
    std::cout << train::describe_keys();
    return;
  }
  MANTISSA_CHECK(options.run_file.empty() != options.resume.empty(), InvalidArgument,
                 "train: name either a run file or --resume DIR; see mantissa train --help");
  MANTISSA_CHECK(options.resume.empty() || (options.out.empty() && all_settings(options).empty()),
                 InvalidArgument,
                 "train: --resume takes the settings of its run folder; leave out --set, "
                 "--precision, --policy, --microbatch, --memory, --recompute and --out, or start a "
                 "new run");
  train::RunConfig config;
  std::filesystem::path folder = options.resume;
  if (options.resume.empty()) {
    config = train::load_run_config(options.run_file, all_settings(options));
    folder = options.out.empty() ? default_folder(options.run_file, config.precision.compute)
                                 : std::filesystem::path(options.out);
  } else {
    config = train::load_run(folder);
  }

  prepare_process();
  tell_of_missing_units(config.precision.compute);
  train::LoopOptions loop;
  loop.stop = &stop;
  train::LoopOutcome outcome;
  {
    ProgressDisplay display(config.train.steps);
    loop.observe = [&](const record::Event& event) { display.show(event); };
    outcome = options.resume.empty() ? train::start_run(config, folder, loop)
                                     : train::resume_run(folder, loop);
  }
  if (outcome.ending == train::Ending::interrupted) {
    std::cerr << "mantissa: interrupted at step " << outcome.summary.steps
              << ", state saved; go on with: mantissa train --resume " << folder.string() << "\n";
    exit_code = kSavedRunAgain;
  } else if (outcome.ending == train::Ending::patience) {
    std::cerr << "mantissa: stopped early: train.patience " << config.train.patience
              << " validations without a new best, not the precision, ended this run\n";
  }
  if (report_divergence(config, outcome, folder)) {
    exit_code = kFailed;
  }
  if (options.json) {
    std::cout << record::to_json(outcome.summary) << "\n";
  } else {
    std::cout << report::comparison_table({outcome.summary}) << "run folder             "
              << folder.string() << "\n";
  }
}

}  // namespace

void add_train(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("train", "Train a run file, or go on with a run");
  command->add_option("RUN.toml", options->run_file, "run file; recipes/ has some");
  command->add_option("--resume", options->resume, "go on with the run in this folder")
      ->check(refuse_empty_folder);
  command->add_option("--out", options->out, "new folder of the run (default: runs/NAME-PRECISION)")
      ->check(refuse_empty_folder);
  command->add_option("--precision", options->precision,
                      "fp32, tf32, bf16 or fp16; short for --set precision.compute=...");
  command->add_option("--policy", options->policy,
                      "a name (mantissa policy list) or a policy file (.toml); short for --set "
                      "precision.policy=...");
  command->add_option("--microbatch", options->microbatch,
                      "sequences a forward pass, or auto: the most with which a step fits into "
                      "--memory; short for --set train.microbatch=...");
  add_memory_option(*command, options->memory);
  command->add_option("--recompute", options->recompute,
                      "none, elementwise, block or full: what backward computes again instead of "
                      "keeping it; short for --set train.recompute=...");
  command->add_option("--set", options->settings, "KEY=VALUE, over the run file; may be repeated")
      ->allow_extra_args(false);
  command->add_flag("--json", options->json, "summary as one JSON object, the last line of stdout");
  command->add_flag("--help-keys", options->help_keys, "every key of a run file, and exit");
  command->callback([options, &exit_code] { run_train(*options, exit_code); });
}

}  // namespace mantissa::cli
