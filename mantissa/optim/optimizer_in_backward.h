#pragma once

#include <cstddef>
#include <memory>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"
#include "mantissa/optim/optimizer.h"

namespace mantissa::optim {

struct InBackwardReport {
  StepOutcome outcome = StepOutcome::nothing_to_do;
  double norm = 0;  // global L2 of the unscaled gradients, known too late to clip by
};

/// Updates each parameter as soon as backward has its gradient and frees the gradient at once, so
/// that only a few of them are ever alive (as LOMO and PyTorch's "optimizer step in backward"). The
/// weights, moments and counts after `finish` are those of Optimizer::step, bit for bit.
///
///     OptimizerInBackward in_backward(optimizer);
///     for (...) {
///       in_backward.begin({.lr = lr_at(schedule, optimizer.steps())});
///       model.loss(batch).backward();
///       in_backward.finish();
///     }
///
/// What needs all gradients of a step together cannot be had, and is refused: clipping by the
/// global norm, skipping a step as a dynamic loss scale does, and sums over several backwards, of
/// microbatches or several losses. A constant scale can. So it is for FP32 and BF16, of which
/// gradients do not overflow in a sound run: one that is not finite throws before it is applied,
/// but those that came before it are: go on from a checkpoint.
///
/// Fused passes only. The optimizer outlives it and stays where it is. Backward runs in one thread.
/// A weight that autograd has saved for a part of the graph that leads to no gradient of it, as by
/// detach(), may change before that part runs; autograd then throws.
class MANTISSA_API OptimizerInBackward {
 public:
  /// Unsupported for an optimizer that is not fused.
  explicit OptimizerInBackward(Optimizer& optimizer);

  /// Parameters get gradients again.
  ~OptimizerInBackward();

  OptimizerInBackward(const OptimizerInBackward&) = delete;
  OptimizerInBackward& operator=(const OptimizerInBackward&) = delete;

  /// Before backward. InvalidArgument for a clip_factor or found_inf, and while gradients are left
  /// from before. The backward throws InvalidArgument for a second gradient of a parameter, and
  /// Error for one that is not finite; then begin again.
  void begin(const StepOptions& options);

  /// After it. Counts the step when there was a gradient.
  InBackwardReport finish();

 private:
  class Hook;
  struct Step;

  void update(size_t slot);

  Optimizer& optimizer_;
  std::unique_ptr<Step> step_;  // between `begin` and `finish`
  std::shared_ptr<OptimizerInBackward*> self_;
};

}  // namespace mantissa::optim
