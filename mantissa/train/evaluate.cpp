#include "mantissa/train/evaluate.h"

#include <cmath>
#include <numbers>
#include <optional>

#include <ATen/core/grad_mode.h>

#include "mantissa/base/error.h"
#include "mantissa/optim/ema.h"

namespace mantissa::train {

EvaluationResult evaluate(const StepParts& parts, std::shared_ptr<const data::Dataset> dataset,
                          const data::EvaluationOptions& options) {
  const at::NoGradGuard no_grad;
  std::optional<optim::EmaGuard> averaged;
  if (parts.ema != nullptr) {
    averaged.emplace(*parts.ema);
  }
  const data::EvaluationBatches batches(std::move(dataset), options);
  EvaluationResult result;
  double sum = 0;
  for (uint64_t i = 0; i < batches.size(); ++i) {
    const data::Batch batch = batches.batch(i);
    const int64_t targets = num_targets(batch);
    if (targets == 0) {
      continue;
    }
    sum += forward_loss(parts, batch, models::Mode::evaluation).item<double>() *
           static_cast<double>(targets);
    result.num_targets += targets;
  }
  MANTISSA_CHECK(result.num_targets > 0, InvalidArgument,
                 "evaluate: no target in the validation data; hold out a longer region");
  result.loss = sum / static_cast<double>(result.num_targets);
  result.bits_per_base = result.loss / std::numbers::ln2;
  return result;
}

}  // namespace mantissa::train
