#include "mantissa/train/next_steps.h"

#include <cmath>
#include <utility>

#include "mantissa/base/error.h"
#include "mantissa/train/microbatch.h"
#include "mantissa/train/starting_point.h"

namespace mantissa::train {
namespace {

RunData prepared(const RunConfig& config) {
  use_allocator(config);
  use_threads(config);
  return open_data(config);
}

// Activations are kept: gradients are the same, and operations that are called again would be seen
// twice.
RunConfig traceable(RunConfig config) {
  config.train.recompute = "none";
  return config;
}

// Might a lower scale do?
bool is_on_its_way(const StepReport& report, const Learner& learner) {
  const bool is_models = report.skip ? monitor::is_model_fault(report.skip->reason.cause)
                                     : !std::isfinite(report.loss);
  return !is_models && learner.scaler().value().item<double>() < report.scale;
}

}  // namespace

RunConfig with_policy(const RunConfig& config, const amp::Policy& policy) {
  RunConfig result = config;
  result.precision.policy = to_string(policy);
  result.precision.compute = numerics::to_string(policy.compute);
  result.precision.param = numerics::to_string(policy.param);
  return result;
}

NextSteps::NextSteps(const RunConfig& config, NextStepsOptions options)
    : data_(prepared(config)),
      config_(traceable(with_microbatch(config, data_))),
      options_(std::move(options)) {
  MANTISSA_CHECK(options_.steps >= 1, InvalidArgument, "inspect: steps is ", options_.steps,
                 "; use 1 or more");
  Learner first(config_);
  const auto loader = make_loader(config_, data_);
  steps_done_ = begin_at(options_.checkpoint, config_, data_, first, *loader);
  batches_.reserve(static_cast<size_t>(options_.steps));
  for (int64_t step = 0; step < options_.steps; ++step) {
    batches_.push_back(next_microbatches(config_, *loader));
  }
}

std::unique_ptr<Learner> NextSteps::learner(const RunConfig& config) const {
  auto learner = std::make_unique<Learner>(config);
  const auto loader = make_loader(config, data_);
  (void)begin_at(options_.checkpoint, config, data_, *learner, *loader);
  return learner;
}

std::optional<FailedStep> NextSteps::train(
    Learner& learner, const RunConfig& config, int64_t count,
    const std::function<void(const StepReport&)>& applied) const {
  for (int64_t step = 0; step < count; ++step) {
    const std::vector<data::Batch>& batches = batches_[static_cast<size_t>(step)];
    StepParts parts = learner.parts();
    parts.explain_skips = config.train.explain_skips;
    for (int attempt = 1;; ++attempt) {
      StepReport report = training_step(parts, batches, learner.lr());
      if (report.outcome != optim::StepOutcome::skipped) {
        if (applied) {
          applied(report);
        }
        break;
      }
      if (attempt == kMostScaleSkips || !is_on_its_way(report, learner)) {
        FailedStep failed{steps_done_ + step + 1, std::move(report), "", ""};
        if (const auto& skip = failed.report.skip) {
          failed.why = describe(*skip, batches, *data_.genome);
          failed.bases = bases_of(*skip, batches, *data_.genome);
        }
        return failed;
      }
    }
  }
  return std::nullopt;
}

}  // namespace mantissa::train
