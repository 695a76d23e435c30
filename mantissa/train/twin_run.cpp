#include "mantissa/train/twin_run.h"

#include <string>

#include "mantissa/base/error.h"
#include "mantissa/tensor/dtype.h"
#include "mantissa/train/keep.h"

namespace mantissa::train {

using numerics::Format;

TwinRun compare_with_twin(const RunConfig& config, Learner& learner, const data::Batch& batch) {
  const StepParts parts = learner.parts();
  StepParts twin = learner.parts();
  twin.policy = with_formats(parts.policy, [](Format) { return Format::fp32; });
  twin.compute = Format::fp32;
  const tensor::ParameterList parameters = parts.model.parameters();
  const monitor::ReplayPoint point;
  const auto loss = [&] { return forward_loss(parts, batch); };
  TwinRun result;
  result.scale = parts.scaler.value().item<double>();
  result.policy = amp::to_string(parts.policy);
  const double given = result.scale;
  if (config.scale_kind() == "dynamic") {
    while (result.scale > 1 && !monitor::is_finite_step(point, parameters, result.scale, loss)) {
      result.scale /= 2;
    }
    if (result.scale <= 1) {
      result.scale = given;  // none does
    }
  }
  result.report =
      monitor::compare_with_twin(point, parameters, loss, [&] { return forward_loss(twin, batch); },
                                 {.format = parts.compute, .scale = result.scale});
  return result;
}

TwinRun inspect_twin(const RunConfig& config, const NextStepsOptions& options) {
  MANTISSA_CHECK(
      tensor::is_16bit(tensor::dtype_of(numerics::parse_format(config.precision.compute))),
      InvalidArgument, "inspect: a twin is FP32, and this run computes in ",
      config.precision.compute, "; add --precision bf16 or fp16");
  const NextSteps steps(config, options);
  RunConfig quiet = steps.config();
  quiet.train.explain_skips = true;
  const auto learner = steps.learner(quiet);
  if (const auto failed = steps.train(*learner, quiet, steps.num_steps() - 1)) {
    throw Error(concat("inspect: step ", failed->step,
                       ", before the one to compare, failed: ", failed->why,
                       "; compare that one, with --steps ", failed->step - steps.first_step() + 1));
  }
  TwinRun result = compare_with_twin(quiet, *learner, steps.batches().back().front());
  result.step = steps.first_step() + steps.num_steps() - 1;
  return result;
}

}  // namespace mantissa::train
