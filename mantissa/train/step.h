#pragma once

#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mantissa/amp/loss_scaler.h"
#include "mantissa/amp/parameter_formats.h"
#include "mantissa/amp/policy.h"
#include "mantissa/base/api.h"
#include "mantissa/data/batch.h"
#include "mantissa/models/language_model.h"
#include "mantissa/monitor/time_split.h"
#include "mantissa/numerics/format.h"
#include "mantissa/optim/ema.h"
#include "mantissa/optim/optimizer.h"
#include "mantissa/train/skip_explanation.h"

namespace mantissa::train {

/// What one step works on. The parts outlive the step.
struct StepParts {
  const models::LanguageModel& model;
  optim::Optimizer& optimizer;
  amp::LossScaler& scaler;
  amp::Policy policy;
  const amp::ParameterFormats& formats;
  numerics::Format compute = numerics::Format::fp32;
  double clip = 0;            // largest gradient norm after unscaling; 0: no clipping
  bool explain_skips = true;  // run a skipped step again to learn why
  optim::Ema* ema = nullptr;
  bool gradient_statistics = false;              // report those of each parameter
  std::optional<numerics::Format> emulate = {};  // in the place of `compute` (amp/emulation.h)
  double loss_weight = 1;               // of the loss in backward; not of the one that is reported
  monitor::TimeSplit* times = nullptr;  // gets the phases of the step
};

struct StepReport {
  double loss = 0;       // nats a target, over all microbatches, before the update
  double grad_norm = 0;  // global L2, unscaled, before clipping
  double scale = 1;      // that this step's loss was multiplied by
  optim::StepOutcome outcome = optim::StepOutcome::applied;
  std::vector<optim::LostUpdates> lost;  // of an applied one: see Optimizer::lost_updates()
  std::vector<optim::NamedGradientStatistics> gradients;  // with gradient_statistics
  optim::OptimizerBytes bytes;                            // when the gradients were complete
  std::optional<SkipExplanation> skip;                    // of a skipped one, with explain_skips
};

/// Number of targets of a batch that are scored.
MANTISSA_API int64_t num_targets(const data::Batch& batch);

/// The loss of `batch` as its policy has it computed: mean nats a target, 0-d FP32. With gradients
/// when grad mode is on.
MANTISSA_API at::Tensor forward_loss(const StepParts& parts, const data::Batch& batch,
                                     models::Mode mode = models::Mode::training);

/// One optimizer step over the mean loss of all targets in `microbatches`, whose number does not
/// change the result beyond the order of FP32 sums. A step with a gradient that is not finite
/// changes nothing but the scale; nor the scale when that was not at fault (monitor::SkipCause).
/// Waits for the device, since it reports numbers.
MANTISSA_API StepReport training_step(const StepParts& parts,
                                      const std::vector<data::Batch>& microbatches, double lr);

}  // namespace mantissa::train
