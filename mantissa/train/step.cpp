#include "mantissa/train/step.h"

#include "mantissa/amp/autocast.h"
#include "mantissa/base/error.h"
#include "mantissa/data/tokenizer.h"
#include "mantissa/ops/tf32.h"
#include "mantissa/optim/clip.h"
#include "mantissa/tensor/memory.h"

namespace mantissa::train {

using numerics::Format;
using tensor::memory::Category;
using tensor::memory::CategoryScope;

namespace {

std::string first_nonfinite_gradient(const models::Transformer& model) {
  for (const tensor::Parameter& parameter : model.parameters()) {
    const at::Tensor& gradient = parameter.value.grad();
    if (gradient.defined() && !gradient.isfinite().all().item<bool>()) {
      return parameter.name;
    }
  }
  return "";  // finite as they are, but not once accumulated or unscaled
}

}  // namespace

int64_t num_targets(const data::Batch& batch) {
  return batch.targets.ne(data::kIgnore).sum().item<int64_t>();
}

at::Tensor forward_loss(const StepParts& parts, const data::Batch& batch) {
  const ops::Tf32Guard tf32(parts.compute == Format::tf32 ? ops::Tf32::on : ops::Tf32::off);
  const CategoryScope activations(Category::activations);
  const amp::Autocast region(parts.policy, parts.formats);
  const at::Tensor logits = amp::cast_output(parts.policy, parts.model.forward(batch.tokens));
  return models::token_loss(logits, batch.targets);
}

StepReport training_step(const StepParts& parts, const std::vector<data::Batch>& microbatches,
                         double lr) {
  // Also over backward: the products there follow the same rule.
  const ops::Tf32Guard tf32(parts.compute == Format::tf32 ? ops::Tf32::on : ops::Tf32::off);
  int64_t total = 0;
  for (const data::Batch& batch : microbatches) {
    total += num_targets(batch);
  }
  MANTISSA_CHECK(total > 0, InvalidArgument, "train: none of ", microbatches.size(),
                 " microbatches has a target; use longer contexts or larger batches");

  StepReport report;
  report.scale = parts.scaler.value().item<double>();
  for (const data::Batch& batch : microbatches) {
    const int64_t targets = num_targets(batch);
    if (targets == 0) {
      continue;  // the mean of nothing would be NaN
    }
    const double weight = static_cast<double>(targets) / static_cast<double>(total);
    const at::Tensor loss = forward_loss(parts, batch).mul(weight);
    report.loss += loss.item<double>();
    parts.scaler.scale(loss).backward();
    if (microbatches.size() > 1) {
      parts.optimizer.accumulate_();
    }
  }

  report.bytes = parts.optimizer.bytes();
  const optim::GradientReport gradients = parts.optimizer.read_gradients(parts.scaler.value());
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
    report.nonfinite = first_nonfinite_gradient(parts.model);
  } else {
    report.lost = parts.optimizer.lost_updates();
  }
  parts.scaler.update(gradients.found_inf);
  parts.optimizer.zero_grad();
  report.grad_norm = gradients.norm.item<double>();
  return report;
}

}  // namespace mantissa::train
