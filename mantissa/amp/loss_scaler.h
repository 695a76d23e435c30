#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"
#include "mantissa/tensor/state_dict.h"

namespace mantissa::amp {

/// The text of an enumerator is its name, without the underscore of `static_`.
enum class ScaleKind : uint8_t {
  none,     // the scale is 1: FP32, BF16
  static_,  // the scale is `initial` and never changes
  dynamic,  // the scale grows and backs off
};

MANTISSA_API std::string_view to_string(ScaleKind kind);

/// Throws InvalidArgument with the nearest valid name.
MANTISSA_API ScaleKind parse_scale_kind(std::string_view name);

/// A scale is a finite normal FP32 number above 0. Kind `none` takes no other option and `static_`
/// only `initial`: an option without an effect must have its default value.
struct LossScalerOptions {
  ScaleKind kind = ScaleKind::dynamic;
  float initial = 65536.0F;        // 2^16
  float growth = 2.0F;             // > 1; after `growth_interval` finite steps in a row
  float backoff = 0.5F;            // in (0, 1); after a step with a non-finite gradient
  float floor = 1.0F;              // the scale never falls below this
  std::optional<float> ceiling;    // nor rises above this; without one it stays finite all the same
  int32_t growth_interval = 2000;  // steps, >= 1
};

/// Trains on `scale * loss`, so that small FP16 gradients do not underflow, and searches for the
/// largest scale that keeps every gradient finite. The rule is that of torch 2.13, with a floor and
/// a ceiling. With powers of two everywhere, as by default, scaling and unscaling are exact.
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

  void update(const at::Tensor& found_inf);

  /// The scale, a 0-d FP32 tensor on the device, which update() writes into.
  const at::Tensor& value() const { return scale_; }

  const LossScalerOptions& options() const { return options_; }

  /// `kind`, `scale` and `growth_tracker` (finite steps since the scale last changed); options are
  /// part of the run file instead. Shares its tensors with the scaler.
  tensor::StateDict state_dict() const;

  /// Throws Corruption, and changes nothing, for a state that a scaler with these options cannot
  /// have. A tracker beyond `growth_interval` is valid: the scale grows at the next finite step.
  /// Waits for the device.
  void load_state_dict(const tensor::StateDict& state);

 private:
  void require_on_device(const at::Tensor& tensor, std::string_view where,
                         std::string_view what) const;

  LossScalerOptions options_;
  at::Tensor scale_;
  at::Tensor growth_tracker_;
};

}  // namespace mantissa::amp
