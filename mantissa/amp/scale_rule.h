#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "mantissa/base/api.h"

namespace mantissa::amp {

/// When the overflows that hysteresis allows are full again.
enum class HysteresisRefill : uint8_t {
  at_growth,         // Megatron; DeepSpeed by default
  each_finite_step,  // DeepSpeed's consecutive_hysteresis
};

/// The text of an enumerator is its name, without the underscore of `static_`.
enum class ScaleKind : uint8_t {
  none,     // the scale is 1: FP32, BF16
  static_,  // the scale is `initial` and never changes
  dynamic,  // the scale grows and backs off
};

MANTISSA_API std::string_view to_string(ScaleKind kind);

/// Throws InvalidArgument with the nearest valid name.
MANTISSA_API ScaleKind parse_scale_kind(std::string_view name);

/// How the loss scale moves. A scale is a finite normal FP32 number above 0. Kind `none` takes no
/// other option and `static_` only `initial`: an option without an effect must have its default
/// value.
struct LossScalerOptions {
  ScaleKind kind = ScaleKind::dynamic;
  float initial = 65536.0F;        // 2^16
  float growth = 2.0F;             // > 1; after `growth_interval` finite steps in a row
  float backoff = 0.5F;            // in (0, 1); after an overflow
  float floor = 1.0F;              // the scale never falls below this
  std::optional<float> ceiling;    // nor rises above this; without one it stays finite all the same
  int32_t growth_interval = 2000;  // finite steps, >= 1
  int32_t growth_delay = 0;        // further ones before the first growth after an overflow
  int32_t hysteresis = 1;          // an overflow lowers the scale from this one on, >= 1
  HysteresisRefill refill = HysteresisRefill::at_growth;
  /// Not 0: the finite steps before a growth that stays at or below `backoff` times the scale at
  /// which the last series of overflows began. A spike that takes the scale down by powers of two
  /// then costs a few steps, not thousands, until it is back.
  int32_t regrowth_interval = 0;

  bool operator==(const LossScalerOptions&) const = default;
};

/// The numbers of other libraries:
///   torch      torch.amp.GradScaler: 2^16, x2 after 2000, x0.5
///   apex       the same, at most 2^24
///   keras      LossScaleOptimizer: 2^15, x2 after 2000
///   deepspeed  2^16, x2 after 1000 (the first after an overflow after 1001), hysteresis 2, floor 1
///   megatron   2^32, x2 after 1000, hysteresis 2, floor 1
///   jmp        DynamicLossScale: 2^15, x2 after 2000, floor 1
/// torch, apex and keras have no floor, and their scale can become 0; here it is the smallest
/// normal FP32 number. Throws InvalidArgument with the nearest valid name.
MANTISSA_API LossScalerOptions scale_preset(std::string_view name);
MANTISSA_API std::vector<std::string_view> scale_preset_names();

/// Throws InvalidArgument with the setting, its value and what is valid.
MANTISSA_API void validate(const LossScalerOptions& options);

/// What moves. All of it is in a checkpoint.
struct ScaleState {
  float scale = 1.0F;
  int32_t growth_tracker = 0;  // finite steps since the last growth or overflow, less the delay
  int32_t overflows_left = 1;  // of the hysteresis, before one lowers the scale
  float settled = 0.0F;        // up to here regrowth_interval counts
  int64_t skipped = 0;         // steps, in all
  int64_t skipped_in_row = 0;  // up to now

  bool operator==(const ScaleState&) const = default;
};

/// What the gradients of a step showed.
enum class Overflow : uint8_t {
  none,   // all are finite
  scale,  // made by the scale, as far as is known: the rule may lower it
  model,  // not finite at any scale, as when the loss is not: counted, but nothing else moves
};

MANTISSA_API ScaleState initial_state(const LossScalerOptions& options);

/// The state after one more step.
MANTISSA_API ScaleState next_state(const LossScalerOptions& options, const ScaleState& state,
                                   Overflow overflow);

}  // namespace mantissa::amp
