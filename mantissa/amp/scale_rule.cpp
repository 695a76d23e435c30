#include "mantissa/amp/scale_rule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "mantissa/base/error.h"
#include "mantissa/base/nearest.h"

namespace mantissa::amp {
namespace {

constexpr std::array kScaleKinds = {ScaleKind::none, ScaleKind::static_, ScaleKind::dynamic};
constexpr float kSmallest = std::numeric_limits<float>::min();

const std::array<std::pair<std::string_view, LossScalerOptions>, 6>& presets() {
  static const std::array<std::pair<std::string_view, LossScalerOptions>, 6> all = {{
      {"torch", {.floor = kSmallest}},
      {"apex", {.floor = kSmallest, .ceiling = 0x1p24F}},
      {"keras", {.initial = 0x1p15F, .floor = kSmallest}},
      {"deepspeed", {.growth_interval = 1000, .growth_delay = 1, .hysteresis = 2}},
      {"megatron", {.initial = 0x1p32F, .growth_interval = 1000, .hysteresis = 2}},
      {"jmp", {.initial = 0x1p15F}},
  }};
  return all;
}

void require_scale(float value, std::string_view name) {
  MANTISSA_CHECK(std::isnormal(value) && value > 0, InvalidArgument, "loss scaler: ", name, " is ",
                 value, "; valid: a finite normal FP32 number above 0");
}

void require_at_least(int32_t value, int32_t least, std::string_view name) {
  MANTISSA_CHECK(value >= least, InvalidArgument, "loss scaler: ", name, " is ", value,
                 "; valid: ", least, " or more steps");
}

void validate_dynamic(const LossScalerOptions& options) {
  MANTISSA_CHECK(std::isfinite(options.growth) && options.growth > 1, InvalidArgument,
                 "loss scaler: growth is ", options.growth, "; valid: finite, above 1");
  MANTISSA_CHECK(options.backoff > 0 && options.backoff < 1, InvalidArgument,
                 "loss scaler: backoff is ", options.backoff, "; valid: above 0, below 1");
  require_at_least(options.growth_interval, 1, "growth_interval");
  require_at_least(options.growth_delay, 0, "growth_delay");
  require_at_least(options.hysteresis, 1, "hysteresis");
  require_at_least(options.regrowth_interval, 0, "regrowth_interval");
  MANTISSA_CHECK(options.hysteresis > 1 || options.refill == HysteresisRefill::at_growth,
                 InvalidArgument,
                 "loss scaler: refill has no effect with hysteresis 1; leave it out");
  require_scale(options.floor, "floor");
  MANTISSA_CHECK(options.floor <= options.initial, InvalidArgument, "loss scaler: floor is ",
                 options.floor, "; valid: at most initial, which is ", options.initial);
  if (options.ceiling) {
    require_scale(*options.ceiling, "ceiling");
    MANTISSA_CHECK(options.initial <= *options.ceiling, InvalidArgument, "loss scaler: ceiling is ",
                   *options.ceiling, "; valid: at least initial, which is ", options.initial);
  }
}

}  // namespace

std::string_view to_string(ScaleKind kind) {
  switch (kind) {
    case ScaleKind::none:
      return "none";
    case ScaleKind::static_:
      return "static";
    case ScaleKind::dynamic:
      return "dynamic";
  }
  MANTISSA_ASSERT(false);
}

ScaleKind parse_scale_kind(std::string_view name) {
  return parse_enumerator(name, kScaleKinds, "loss scaler: unknown kind");
}

LossScalerOptions scale_preset(std::string_view name) {
  std::vector<std::string> names;
  for (const auto& [preset, options] : presets()) {
    if (preset == name) {
      return options;
    }
    names.emplace_back(preset);
  }
  throw InvalidArgument(
      concat("loss scaler: unknown preset \"", name, "\"", suggestion(name, names)));
}

std::vector<std::string_view> scale_preset_names() {
  std::vector<std::string_view> names;
  for (const auto& [preset, options] : presets()) {
    names.push_back(preset);
  }
  return names;
}

void validate(const LossScalerOptions& options) {
  require_scale(options.initial, "initial");
  if (options.kind == ScaleKind::dynamic) {
    validate_dynamic(options);
    return;
  }
  const LossScalerOptions defaults;
  const auto require_default = [&](bool is_default, std::string_view name) {
    MANTISSA_CHECK(is_default, InvalidArgument, "loss scaler: ", name,
                   " is set but has no effect with kind ", to_string(options.kind),
                   "; leave it out, or use kind ",
                   options.kind == ScaleKind::none && name == "initial" ? "static" : "dynamic");
  };
  require_default(options.kind == ScaleKind::static_ || options.initial == defaults.initial,
                  "initial");
  require_default(options.growth == defaults.growth, "growth");
  require_default(options.backoff == defaults.backoff, "backoff");
  require_default(options.floor == defaults.floor, "floor");
  require_default(!options.ceiling, "ceiling");
  require_default(options.growth_interval == defaults.growth_interval, "growth_interval");
  require_default(options.growth_delay == defaults.growth_delay, "growth_delay");
  require_default(options.hysteresis == defaults.hysteresis, "hysteresis");
  require_default(options.refill == defaults.refill, "refill");
  require_default(options.regrowth_interval == defaults.regrowth_interval, "regrowth_interval");
}

ScaleState initial_state(const LossScalerOptions& options) {
  ScaleState state;
  state.scale = options.kind == ScaleKind::none ? 1.0F : options.initial;
  state.growth_tracker = -options.growth_delay;
  state.overflows_left = options.hysteresis;
  return state;
}

ScaleState next_state(const LossScalerOptions& options, const ScaleState& state,
                      Overflow overflow) {
  ScaleState next = state;
  const bool skipped = overflow != Overflow::none;
  next.skipped += skipped ? 1 : 0;
  next.skipped_in_row = skipped ? state.skipped_in_row + 1 : 0;
  if (options.kind != ScaleKind::dynamic || overflow == Overflow::model) {
    return next;
  }
  if (overflow == Overflow::scale) {
    next.growth_tracker = -options.growth_delay;
    next.overflows_left = std::max(state.overflows_left - 1, 0);
    if (next.overflows_left == 0) {
      if (state.skipped_in_row == 0) {
        next.settled = state.scale * options.backoff;
      }
      next.scale = std::max(state.scale * options.backoff, options.floor);
      next.overflows_left = 1;  // each further one lowers it again
    }
    return next;
  }
  if (options.refill == HysteresisRefill::each_finite_step) {
    next.overflows_left = options.hysteresis;
  }
  const float grown = state.scale * options.growth;
  const bool regrows = options.regrowth_interval > 0 && grown <= state.settled;
  const int32_t interval = regrows ? options.regrowth_interval : options.growth_interval;
  if (state.growth_tracker < interval - 1) {  // a loaded count may be the largest int32
    ++next.growth_tracker;
    return next;
  }
  next.growth_tracker = 0;
  next.overflows_left = options.hysteresis;
  if (std::isfinite(grown)) {
    next.scale = std::min(grown, options.ceiling.value_or(std::numeric_limits<float>::max()));
  }
  return next;
}

}  // namespace mantissa::amp
