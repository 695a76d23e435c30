#pragma once

#include <string_view>

#include <ATen/core/Tensor.h>

#include "mantissa/amp/scale_rule.h"
#include "mantissa/amp/scale_tensors.h"
#include "mantissa/base/api.h"
#include "mantissa/tensor/state_dict.h"

namespace mantissa::amp {

/// Trains on `scale * loss`, so that small FP16 gradients do not underflow, and searches for the
/// largest scale that keeps every gradient finite. The rule is that of torch 2.13, with a floor and
/// a ceiling; scale_preset() has those of others. With powers of two everywhere, as by default,
/// scaling and unscaling are exact.
///
/// A step hands `found_inf`, a 0-d FP32 tensor, from call to call. It is nonzero when the step must
/// be skipped. No call waits for the device, but for load_state_dict.
///
///     scaler.scale(loss).backward();
///     auto found_inf = scaler.unscale_(master_grads);  // before clipping
///     optimizer.step(found_inf);                       // keeps weights when set
///     scaler.update(found_inf);
class MANTISSA_API LossScaler {
 public:
  /// Throws InvalidArgument with the option, its value and what is valid.
  explicit LossScaler(at::Device device, const LossScalerOptions& options = {});

  LossScaler(LossScaler&&) = default;  // a copy would share its tensors
  LossScaler& operator=(LossScaler&&) = default;

  /// `scale * loss` in FP32, for a loss of any shape and floating-point dtype.
  at::Tensor scale(const at::Tensor& loss) const;

  /// Divides `grads` in place. They must be FP32: in FP16 the division would lose the bits that
  /// scaling has saved. `found_inf` tells of values that are not finite before or after.
  [[nodiscard]] at::Tensor unscale_(at::TensorList grads) const;

  /// Moves the scale by its rule. `model_fault`, one value on the same device, says that the skip
  /// is none of the scale's when it is not 0: a loss that is not finite, say, which no smaller
  /// scale helps. Such a step is counted, and the scale stays. Without it every skip is the
  /// scale's, as in torch.
  ///
  ///     scaler.update(found_inf, loss.isfinite().logical_not());
  void update(const at::Tensor& found_inf, const at::Tensor& model_fault = {});

  /// One step of several optimizers, each of which is skipped on its own `found_inf`: the scale
  /// backs off when any is set. Throws InvalidArgument for an empty list.
  void update(at::TensorList found_infs);

  /// The scale, a 0-d FP32 tensor on the device, which update() writes into.
  const at::Tensor& value() const { return state_.scale; }

  /// Steps that update() was told to have overflowed: in all, and up to the last one in a row. 0-d
  /// int64 tensors on the device.
  const at::Tensor& skipped() const { return state_.skipped; }
  const at::Tensor& skipped_in_row() const { return state_.skipped_in_row; }

  const LossScalerOptions& options() const { return options_; }

  /// `kind` and every tensor of ScaleState; options are part of the run file instead. Shares its
  /// tensors with the scaler.
  tensor::StateDict state_dict() const;

  /// Throws Corruption, and changes nothing, for a state that a scaler with these options cannot
  /// have. A tracker beyond `growth_interval` is valid: the scale grows at the next finite step.
  /// Waits for the device.
  void load_state_dict(const tensor::StateDict& state);

 private:
  void require_on_device(const at::Tensor& tensor, std::string_view where,
                         std::string_view what) const;
  void require_found_inf(const at::Tensor& found_inf) const;

  LossScalerOptions options_;
  ScaleTensors state_;
};

}  // namespace mantissa::amp
