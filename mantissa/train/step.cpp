#include "mantissa/train/step.h"

#include <cmath>
#include <utility>

#include <ATen/ops/full.h>

#include "mantissa/amp/autocast.h"
#include "mantissa/amp/emulation.h"
#include "mantissa/base/error.h"
#include "mantissa/data/tokenizer.h"
#include "mantissa/ops/tf32.h"
#include "mantissa/optim/clip.h"
#include "mantissa/tensor/memory.h"

namespace mantissa::train {

using monitor::Phase;
using monitor::TimeSplit;
using numerics::Format;
using tensor::memory::Category;
using tensor::memory::CategoryScope;

int64_t num_targets(const data::Batch& batch) {
  return batch.targets.ne(data::kIgnore).sum().item<int64_t>();
}

at::Tensor forward_loss(const StepParts& parts, const data::Batch& batch, models::Mode mode) {
  const ops::Tf32Guard tf32(parts.compute == Format::tf32 ? ops::Tf32::on : ops::Tf32::off);
  const CategoryScope activations(Category::activations);
  std::optional<amp::Emulation> emulation;
  if (parts.emulate) {
    emulation.emplace(*parts.emulate);
  }
  const amp::Autocast region(parts.policy, parts.formats);
  if (parts.policy.output.value_or(Format::fp32) == Format::fp32) {
    return parts.model.loss(batch.tokens, batch.targets, mode);
  }
  const at::Tensor logits = amp::cast_output(parts.policy, parts.model.forward(batch.tokens, mode));
  return models::token_loss(logits, batch.targets);
}

StepReport training_step(const StepParts& parts, const std::vector<data::Batch>& microbatches,
                         double lr) {
  // Also over backward: the products there follow the same rule.
  const ops::Tf32Guard tf32(parts.compute == Format::tf32 ? ops::Tf32::on : ops::Tf32::off);
  std::vector<int64_t> targets;
  targets.reserve(microbatches.size());
  int64_t total = 0;
  for (const data::Batch& batch : microbatches) {
    targets.push_back(num_targets(batch));
    total += targets.back();
  }
  MANTISSA_CHECK(total > 0, InvalidArgument, "train: none of ", microbatches.size(),
                 " microbatches has a target; use longer contexts or larger batches");

  const BatchLoss loss_of = [&](const data::Batch& batch) {
    const double share = static_cast<double>(num_targets(batch)) / static_cast<double>(total);
    return forward_loss(parts, batch).mul(share);
  };
  const auto weighted = [&](const at::Tensor& loss) {
    return parts.loss_weight == 1 ? loss : loss.mul(parts.loss_weight);
  };
  std::vector<monitor::ReplayPoint> points;  // of each microbatch, to explain a skip
  StepReport report;
  report.scale = parts.scaler.value().item<double>();
  for (size_t i = 0; i < microbatches.size(); ++i) {
    if (parts.explain_skips) {
      points.emplace_back();
    }
    if (targets[i] == 0) {
      continue;  // the mean of nothing would be NaN
    }
    at::Tensor loss;
    {
      const TimeSplit::Scope forward(parts.times, Phase::forward);
      loss = loss_of(microbatches[i]);
      report.loss += loss.item<double>();
    }
    const TimeSplit::Scope backward(parts.times, Phase::backward);
    parts.scaler.scale(weighted(loss)).backward();
    if (microbatches.size() > 1) {
      const CategoryScope sums(Category::gradients);
      parts.optimizer.accumulate_();
    }
  }

  const TimeSplit::Scope update(parts.times, Phase::optimizer);
  report.bytes = parts.optimizer.bytes();
  optim::GradientReport gradients = parts.optimizer.read_gradients(
      parts.scaler.value(),
      parts.gradient_statistics ? optim::GradientDetail::parameters : optim::GradientDetail::total);
  report.gradients = std::move(gradients.parameters);
  at::Tensor clip_factor;
  if (parts.clip > 0) {
    clip_factor = optim::clip_factor(gradients.norm, parts.clip);
  }
  report.outcome =
      parts.optimizer.step({lr, parts.scaler.value(), clip_factor, gradients.found_inf});
  if (parts.ema != nullptr) {
    parts.ema->update(parts.optimizer, report.outcome);
  }
  if (report.outcome == optim::StepOutcome::skipped) {
    if (parts.explain_skips) {
      const TimeSplit::Scope replay(parts.times, Phase::replay);
      report.skip =
          explain_skip(parts.model.parameters(), microbatches, points, report.scale,
                       [&](const data::Batch& batch) { return weighted(loss_of(batch)); });
    }
  } else {
    report.lost = parts.optimizer.lost_updates();
  }
  const bool is_models = report.skip ? monitor::is_model_fault(report.skip->reason.cause)
                                     : !std::isfinite(report.loss);
  parts.scaler.update(gradients.found_inf, at::full({}, is_models ? 1.0F : 0.0F));
  parts.optimizer.zero_grad();
  report.grad_norm = gradients.norm.item<double>();
  return report;
}

}  // namespace mantissa::train
