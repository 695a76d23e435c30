#include "mantissa/train/lint_run.h"

#include "mantissa/train/assembly.h"
#include "mantissa/train/microbatch.h"
#include "mantissa/train/step.h"

namespace mantissa::train {

monitor::LintReport lint_run(const RunConfig& given) {
  use_allocator(given);
  const RunData data = open_data(given);
  const RunConfig config = with_microbatch(given, data);
  RunConfig quiet = config;
  quiet.train.explain_skips = false;  // it traces the step, and lint does that
  Learner learner(quiet);
  const auto loader = make_loader(config, data);
  const auto batches = next_microbatches(config, *loader);
  const monitor::LintOptions options{.parameters = learner.model().parameters()};
  const int max_steps = config.scale_kind() == "dynamic" ? kMostScaleSkips : 1;
  monitor::LintReport report;
  for (int step = 0; step < max_steps; ++step) {
    optim::StepOutcome outcome = optim::StepOutcome::skipped;
    report = monitor::lint(
        [&] { outcome = training_step(learner.parts(), batches, learner.lr()).outcome; }, options);
    if (outcome != optim::StepOutcome::skipped || !report.stopped.empty()) {
      break;
    }
  }
  return report;
}

}  // namespace mantissa::train
