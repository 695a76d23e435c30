#include <algorithm>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>

#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/cli/arms.h"
#include "mantissa/cli/command.h"
#include "mantissa/cli/compare_options.h"
#include "mantissa/cli/device_times.h"
#include "mantissa/cli/prepare.h"
#include "mantissa/cli/settings.h"
#include "mantissa/cli/stop_signals.h"
#include "mantissa/cli/turns.h"
#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/report/attribution.h"
#include "mantissa/report/command_options.h"
#include "mantissa/report/device_time.h"
#include "mantissa/report/gate.h"
#include "mantissa/report/study.h"
#include "mantissa/report/study_json.h"
#include "mantissa/report/study_text.h"
#include "mantissa/train/machine.h"

namespace mantissa::cli {
namespace {

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

void tell_what_begins(const Comparison& comparison) {
  const train::TrainConfig& train = comparison.arms.front().config.train;
  std::string names;
  for (const Arm& arm : comparison.arms) {
    names += concat(names.empty() ? "" : ", ", arm.name);
  }
  std::cerr << "compare: " << names << ", " << comparison.seeds
            << (comparison.seeds == 1 ? " seed" : " seeds") << ", in turns of "
            << (train.checkpoint_every > 0 ? train.checkpoint_every : train.eval_every)
            << " steps, in " << comparison.out.string() << "\n";
}

std::vector<std::string> names_of(const std::vector<report::StudyRun>& runs) {
  std::vector<std::string> names;
  for (const report::StudyRun& run : runs) {
    if (std::find(names.begin(), names.end(), run.arm) == names.end()) {
      names.push_back(run.arm);
    }
  }
  return names;
}

// What was asked for, of the runs that were asked for.
struct Result {
  report::Study study;
  std::vector<report::GateResult> gates;
  std::optional<report::Attribution> attribution;
  std::vector<report::DeviceTime> devices;

  std::string json() const {
    return to_json(study, gates, hardware_sentence(), attribution, devices);
  }
};

Result result_of(const CompareOptions& options, const Comparison& comparison,
                 const TurnsOutcome& turns, const report::StudyOptions& asked,
                 const std::vector<report::Gate>& gates) {
  Result result;
  result.study = analyse(names_of(turns.runs), reference_of(comparison.arms).name, turns.runs,
                         turns.slices, asked);
  result.gates = judge(gates, result.study);
  if (options.attribute) {
    result.attribution = attribute(result.study, cells_of(comparison.arms));
  }
  return result;
}

// Of all that was ever compared in the folder: a repeat with fewer precisions or seeds takes
// nothing out.
void keep(const Result& result, const Comparison& comparison, TurnsOutcome turns,
          const report::StudyOptions& asked) {
  std::vector<report::StudyRun> more =
      earlier_runs(comparison.out, turns.slices, comparison.arms, turns.runs);
  std::string json = result.json();
  if (!more.empty()) {
    turns.runs.insert(turns.runs.end(), std::make_move_iterator(more.begin()),
                      std::make_move_iterator(more.end()));
    const Result whole = {
        analyse(names_of(turns.runs), result.study.reference, turns.runs, turns.slices, asked),
        result.gates, result.attribution, result.devices};
    json = whole.json();
  }
  replace_file(comparison.out / "comparison.json", json + "\n");
}

void print(const Result& result, const Comparison& comparison) {
  const std::string curves = report::curve_table(result.study);
  std::cout << report::study_table(result.study) << "\n"
            << curves << (curves.empty() ? "" : "\n") << hardware_sentence() << "\n"
            << report::verdict_text(result.study) << report::gates_text(result.gates);
  if (result.attribution) {
    std::cout << "\n"
              << attribution_text(result.study, cells_of(comparison.arms), *result.attribution,
                                  comparison.arms.front().config.train.batch);
  }
  if (!result.devices.empty()) {
    std::cout << "\n" << device_times_text(result.study, result.devices);
  }
}

int exit_code_of(const Result& result, const TurnsOutcome& turns) {
  const bool has_failed =
      std::any_of(turns.runs.begin(), turns.runs.end(),
                  [](const report::StudyRun& run) { return !run.failure.empty(); });
  const bool is_met = std::all_of(result.gates.begin(), result.gates.end(),
                                  [](const report::GateResult& gate) { return gate.is_met; });
  return has_failed || turns.has_diverged ? kFailed : is_met ? kDone : kGateNotMet;
}

void run_compare(const CompareOptions& options, int& exit_code) {
  const std::atomic<int>& stop = stop_flag();
  Comparison comparison;
  comparison.out = options.out;
  comparison.seeds = options.seeds;
  comparison.arms =
      make_arms(options.run_file, settings_of(options.settings, {{"train.memory", options.memory}}),
                {options.precisions, options.policies, options.microbatches}, options.out);
  const std::vector<report::Gate> gates =
      options.require.empty() ? std::vector<report::Gate>() : report::parse_gates(options.require);
  const std::vector<train::DeviceSpec> devices = devices_of(options);
  check(options, comparison.arms, gates);
  report::StudyOptions asked = what_is_asked(options);
  if (options.attribute) {
    // A run that is ended is the beginning of one that is not: one run shows both.
    asked.patience = comparison.arms.front().config.train.patience;
    for (Arm& arm : comparison.arms) {
      arm.config.train.patience = 0;
    }
  }
  if (!options.watts) {
    comparison.energy.emplace();
    if (!options.powercap.empty()) {
      comparison.energy = EnergyCounters{options.powercap, ""};
    }
  }

  prepare_process();
  decide_microbatches(comparison.arms);
  tell_what_begins(comparison);
  const TurnsOutcome turns = train_in_turns(comparison, stop);
  if (turns.is_interrupted) {
    std::cerr << "mantissa: interrupted, state saved in " << options.out
              << "; the same command goes on\n";
    exit_code = kSavedRunAgain;
    return;
  }
  asked.energy_problem = turns.energy_problem;
  Result result = result_of(options, comparison, turns, asked, gates);
  result.devices = device_times(comparison.arms, devices);
  keep(result, comparison, turns, asked);
  exit_code = exit_code_of(result, turns);
  if (options.json) {
    std::cout << result.json() << "\n";
  } else {
    print(result, comparison);
  }
}

}  // namespace

void add_compare(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<CompareOptions>();
  CLI::App* command = app.add_subcommand(
      "compare",
      "Train a run file in several precisions, in turns, same seeds and batches, and say what each "
      "costs");
  command->add_option("RUN.toml", options->run_file, "run file")->required();
  command->add_option("--precisions", options->precisions,
                      "comma-separated: fp32,tf32,bf16,fp16 (default: fp32,bf16,fp16)");
  command->add_option("--policies", options->policies,
                      "comma-separated policies (names, texts or files); each precision but fp32 "
                      "is trained with each");
  command->add_option("--microbatch", options->microbatches,
                      "comma-separated sequences a forward pass, or auto: the most with which a "
                      "step fits into --memory; each of the above is trained with each, and steps "
                      "keep their train.batch sequences");
  add_memory_option(*command, options->memory);
  command->add_flag("--attribute", options->attribute,
                    "what the format did, what the microbatch did, what both did beyond that, and "
                    "what train.patience would have done, which then ends no run");
  command->add_option("--seeds", options->seeds,
                      "runs of each, from train.seed on (default: 1; quality is tested from 2 on)");
  command->add_option("--target", options->target,
                      "bits per base: training time until the first validation at or below it");
  command
      ->add_option("--price", options->price, "of an hour, 2.50/h: cost of a run and to the target")
      ->check(report::refuse_empty);
  command->add_option("--margin", options->margin,
                      "bits per base within which the quality of two precisions is equivalent "
                      "(default: 0.01)");
  command->add_option("--watts", options->watts,
                      "power of the machine, in place of measured energy");
  command
      ->add_option("--powercap", options->powercap,
                   "where Linux counts energy, that alone (default: /sys/class/powercap, and NVML "
                   "for GPUs)")
      ->check(refuse_empty_folder);
  command
      ->add_option("--require", options->require,
                   "comma-separated gates for each precision beside fp32, exit code 3 when one "
                   "is not met: quality (equivalent), speed=X (at least X times as fast), "
                   "memory=X (at most X of the peak), target (each run reached it), cost=X (to "
                   "the target, at most)")
      ->check(report::refuse_empty);
  command->add_option(
      "--devices", options->devices,
      "comma-separated, such as H100,A100-40GB (mantissa plan --list-devices): what "
      "a step would take there at least in each precision, by arithmetic");
  command
      ->add_option("--out", options->out,
                   "folder; a comparison that is there already goes on, or is printed again")
      ->required()
      ->check(refuse_empty_folder);
  command->add_option("--set", options->settings, "KEY=VALUE, over the run file; may be repeated")
      ->allow_extra_args(false);
  command->add_flag("--json", options->json,
                    "one JSON object, the last line of stdout; also in OUT/comparison.json");
  command->callback([options, &exit_code] { run_compare(*options, exit_code); });
}

}  // namespace mantissa::cli
