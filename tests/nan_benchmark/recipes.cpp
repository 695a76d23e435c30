#include "recipes.h"

#include <algorithm>
#include <filesystem>

#include "mantissa/base/error.h"
#include "mantissa/monitor/lint.h"
#include "mantissa/monitor/nonfinite_origin.h"
#include "mantissa/report/quantity.h"
#include "mantissa/train/assembly.h"
#include "mantissa/train/footprint.h"
#include "mantissa/train/lint_run.h"
#include "mantissa/train/microbatch.h"
#include "mantissa/train/plan.h"
#include "mantissa/train/run_config.h"

namespace mantissa::nan_benchmark {
namespace {

constexpr int kSteps = 3;

// A dynamic scale that begins too high skips its first steps: it comes down, which is no fault.
std::string alarm_of_steps(train::RunConfig config) {
  config.train.explain_skips = false;  // it traces, and only one can
  const train::RunData data = train::open_data(config);
  train::Learner learner(config);
  const auto loader = train::make_loader(config, data);
  for (int step = 0; step < kSteps; ++step) {
    const auto batches = train::next_microbatches(config, *loader);
    optim::StepOutcome outcome = optim::StepOutcome::applied;
    const auto origin = monitor::find_nonfinite_origin(
        [&] { outcome = train::training_step(learner.parts(), batches, learner.lr()).outcome; });
    if (!origin.operation.empty() && outcome != optim::StepOutcome::skipped) {
      return monitor::describe(origin);
    }
  }
  return "";
}

std::string alarm_of_lint(const train::RunConfig& config) {
  const monitor::LintReport report = train::lint_run(config);
  for (const monitor::Finding& finding : report.findings) {
    if (finding.severity == monitor::Severity::hazard) {
      return monitor::to_string(finding);
    }
  }
  return report.stopped;
}

// Why such a run does not fit; empty where it does.
std::string lack_of_memory(const train::RunConfig& config, int64_t memory_bytes) {
  const int64_t bytes = train::rank_bytes(train::footprint(config), {}).total();
  return bytes <= memory_bytes ? ""
                               : concat("a step takes ", report::bytes_text(bytes), ", more than ",
                                        report::bytes_text(memory_bytes));
}

RecipeRun run_recipe(const train::RunConfig& config, int64_t memory_bytes) {
  RecipeRun run;
  run.skipped = lack_of_memory(config, memory_bytes);
  if (run.skipped.empty()) {
    run.alarm = alarm_of_lint(config);
  }
  if (run.skipped.empty() && run.alarm.empty()) {
    run.alarm = alarm_of_steps(config);
  }
  return run;
}

// Parameters in 16 bits are of the recipe's own precision; in another one they are FP32.
train::RunConfig config_of(const std::filesystem::path& file, const std::string& fasta,
                           const std::string& precision) {
  std::vector<train::Setting> settings = {{"data.fasta", concat('"', fasta, '"')},
                                          {"data.validation", "[\"NC_001416.1:43653-48502\"]"},
                                          {"train.batch", "2"}};
  const std::string own = train::load_run_config(file, settings).precision.param;
  settings.push_back({"precision.compute", precision});
  if (own != precision) {
    settings.push_back({"precision.param", "fp32"});
  }
  return train::load_run_config(file, settings);
}

}  // namespace

std::vector<RecipeRun> run_recipes(const std::string& folder, const std::string& fasta,
                                   int64_t memory_bytes) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".toml") {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  std::vector<RecipeRun> runs;
  for (const std::filesystem::path& file : files) {
    for (const std::string precision : {"fp32", "bf16", "fp16"}) {
      const train::RunConfig config = config_of(file, fasta, precision);
      RecipeRun& run = runs.emplace_back(run_recipe(config, memory_bytes));
      run.recipe = file.filename();
      run.precision = precision;
    }
  }
  return runs;
}

}  // namespace mantissa::nan_benchmark
