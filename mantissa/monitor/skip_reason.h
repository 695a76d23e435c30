#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"
#include "mantissa/monitor/nonfinite_origin.h"
#include "mantissa/tensor/parameter_list.h"

namespace mantissa::monitor {

/// Whose fault a skipped step is. The text of an enumerator is its name.
enum class SkipCause : uint8_t {
  forward,   // the loss itself is not finite: the model's or the data's, no scale helps
  backward,  // a finite loss, but gradients overflow at scale 1 too
  scale,     // finite at scale 1: the scale was too large, the next one is smaller
  unseen,    // all is finite when the step runs again: the overflow came with accumulation, or the
             // forward pass draws random numbers that ReplayPoint does not know of
};

MANTISSA_API std::string_view to_string(SkipCause cause);

struct SkipReason {
  SkipCause cause = SkipCause::unseen;
  NonfiniteOrigin origin;  // of the first value that is not finite
  std::string parameter;   // the first whose gradient is not finite; empty for `forward`
};

/// What a lower scale could not have helped: the `model_fault` of amp::LossScaler::update().
inline bool is_model_fault(SkipCause cause) {
  return cause == SkipCause::forward || cause == SkipCause::backward;
}

/// `inf from aten::mm within MmBackward0 (backward of blocks.0.mlp)`, and whose fault it is, in one
/// line.
MANTISSA_API std::string describe(const SkipReason& reason);

/// Where a step begins: the state of LibTorch's CPU generator, so that dropout draws the same
/// numbers when the step runs again.
class MANTISSA_API ReplayPoint {
 public:
  ReplayPoint();

  /// Puts the generator back to the point for as long as the guard lives.
  class MANTISSA_API Guard {
   public:
    explicit Guard(const ReplayPoint& point);
    ~Guard();
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    at::Tensor present_;
  };

 private:
  at::Tensor state_;
};

/// Runs a skipped step again, up to twice, to tell why it had to be skipped: at scale 1 and, when
/// all is finite there, at `scale`. `loss` is the forward pass, with its autocast region, and
/// returns the loss before scaling. Gradients are as before afterwards; buffers that a forward pass
/// changes are changed again (tensor::Rollback). Waits for the device.
/// Throws InvalidArgument for a loss that is not one value with a gradient, or a scale that no step
/// can have.
///
///     const monitor::ReplayPoint point;
///     ... a step, skipped ...
///     const auto reason = monitor::find_skip_reason(point, parameters, scale, forward);
MANTISSA_API SkipReason find_skip_reason(const ReplayPoint& point,
                                         const tensor::ParameterList& parameters, double scale,
                                         const std::function<at::Tensor()>& loss);

/// Runs the step once more, as find_skip_reason does but without looking at its calls: are loss and
/// gradients finite at `scale`?
MANTISSA_API bool is_finite_step(const ReplayPoint& point, const tensor::ParameterList& parameters,
                                 double scale, const std::function<at::Tensor()>& loss);

}  // namespace mantissa::monitor
