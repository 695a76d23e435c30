#include "mantissa/train/inspect_run.h"

#include <chrono>
#include <numbers>
#include <string>
#include <utility>

#include "mantissa/base/error.h"
#include "mantissa/monitor/range_recorder.h"
#include "mantissa/tensor/memory.h"
#include "mantissa/train/assembly.h"
#include "mantissa/train/machine.h"
#include "mantissa/train/microbatch.h"
#include "mantissa/train/range_record.h"
#include "mantissa/train/starting_point.h"
#include "mantissa/train/step.h"

namespace mantissa::train {
namespace {

RunConfig inspected(RunConfig config) {
  config.train.explain_skips = false;  // it traces the step, and so does this
  config.train.recompute = "none";
  config.train.gradient_statistics_every = 0;
  return config;
}

class Inspector {
 public:
  Inspector(const RunConfig& config, const RunData& data, const InspectOptions& options)
      : config_(config), options_(options), learner_(config), loader_(make_loader(config, data)) {
    step_ = begin_at(options.checkpoint, config, data, learner_, *loader_);
  }

  Inspection run();

 private:
  void step(Inspection& inspection);
  void emit(const record::Event& event) const {
    if (options_.observe) {
      options_.observe(event);
    }
  }

  const RunConfig& config_;
  const InspectOptions& options_;
  Learner learner_;
  std::unique_ptr<data::Loader> loader_;
  int64_t step_ = 0;
};

void Inspector::step(Inspection& inspection) {
  const auto batches = next_microbatches(config_, *loader_);
  int64_t num_tokens = 0;
  for (const data::Batch& batch : batches) {
    num_tokens += batch.tokens.numel();
  }
  const double lr = learner_.lr();
  const auto start = std::chrono::steady_clock::now();
  monitor::RangeRecorder recorder({.parameters = learner_.model().parameters(),
                                   .master = [&](const tensor::Parameter& parameter) {
                                     return learner_.optimizer().master(parameter.name);
                                   }});
  StepParts parts = learner_.parts();
  parts.emulate = options_.emulate;
  const StepReport report = training_step(parts, batches, lr);
  recorder.finish();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;

  record::Step event;
  event.step = ++step_;
  event.loss = report.loss;
  event.bits_per_base = report.loss / std::numbers::ln2;
  event.lr = lr;
  event.grad_norm = report.grad_norm;
  event.scale = report.scale;
  event.skipped = report.outcome == optim::StepOutcome::skipped;
  event.step_time_s = taken.count() - recorder.cost_s();
  event.tokens_per_s = static_cast<double>(num_tokens) / event.step_time_s;
  event.peak_bytes = tensor::memory::peak_bytes().total();
  emit(event);
  inspection.steps.push_back({step_, report.loss, report.scale, event.skipped, taken.count(),
                              recorder.cost_s(), recorder.origin()});

  const bool is_on_its_way =
      event.skipped && config_.scale_kind() == "dynamic" && inspection.looked_at == 0;
  if (!is_on_its_way || inspection.steps.size() >= kMostScaleSkips) {
    ++inspection.looked_at;
    inspection.ranges.merge(recorder.ranges());
    emit(range_event(step_, recorder.ranges(), report.scale));
  }
}

Inspection Inspector::run() {
  emit(
      record::RunStart{to_toml(config_), environment(), cpu_description(), step_ > 0 ? step_ : -1});
  tensor::memory::reset_peak();
  Inspection inspection;
  while (inspection.looked_at < options_.steps) {
    step(inspection);
  }
  return inspection;
}

}  // namespace

Inspection inspect_run(const RunConfig& given, const InspectOptions& options) {
  MANTISSA_CHECK(options.steps >= 1, InvalidArgument, "inspect: steps is ", options.steps,
                 "; use 1 or more");
  MANTISSA_CHECK(
      !options.emulate || given.precision.compute == "fp16" || given.precision.compute == "bf16",
      InvalidArgument, "inspect: emulation of ", numerics::to_string(*options.emulate),
      " stands for casts to 16 bits, and the precision is ", given.precision.compute,
      "; use precision bf16 or fp16");
  use_allocator(given);
  use_threads(given);
  const RunData data = open_data(given);
  const RunConfig config = inspected(with_microbatch(given, data));
  return Inspector(config, data, options).run();
}

}  // namespace mantissa::train
