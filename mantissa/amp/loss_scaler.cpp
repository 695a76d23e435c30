#include "mantissa/amp/loss_scaler.h"

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "mantissa/base/error.h"
#include "mantissa/base/nearest.h"

namespace mantissa::amp {
namespace {

constexpr std::array kScaleKinds = {ScaleKind::none, ScaleKind::static_, ScaleKind::dynamic};

bool is_scale(float value) { return std::isnormal(value) && value > 0; }

void require_scale(float value, std::string_view name) {
  MANTISSA_CHECK(is_scale(value), InvalidArgument, "loss scaler: ", name, " is ", value,
                 "; valid: a finite normal FP32 number above 0");
}

void require_default(bool is_default, std::string_view name, ScaleKind kind) {
  MANTISSA_CHECK(is_default, InvalidArgument, "loss scaler: ", name,
                 " is set but has no effect with kind ", to_string(kind),
                 "; leave it out, or use kind ",
                 kind == ScaleKind::none && name == "initial" ? "static" : "dynamic");
}

void validate_dynamic(const LossScalerOptions& options) {
  MANTISSA_CHECK(std::isfinite(options.growth) && options.growth > 1, InvalidArgument,
                 "loss scaler: growth is ", options.growth, "; valid: finite, above 1");
  MANTISSA_CHECK(options.backoff > 0 && options.backoff < 1, InvalidArgument,
                 "loss scaler: backoff is ", options.backoff, "; valid: above 0, below 1");
  MANTISSA_CHECK(options.growth_interval >= 1, InvalidArgument, "loss scaler: growth_interval is ",
                 options.growth_interval, "; valid: 1 or more steps");
  require_scale(options.floor, "floor");
  MANTISSA_CHECK(options.floor <= options.initial, InvalidArgument, "loss scaler: floor is ",
                 options.floor, "; valid: at most initial, which is ", options.initial);
  if (options.ceiling) {
    require_scale(*options.ceiling, "ceiling");
    MANTISSA_CHECK(options.initial <= *options.ceiling, InvalidArgument, "loss scaler: ceiling is ",
                   *options.ceiling, "; valid: at least initial, which is ", options.initial);
  }
}

void validate(const LossScalerOptions& options) {
  const LossScalerOptions defaults;
  require_scale(options.initial, "initial");
  if (options.kind == ScaleKind::dynamic) {
    validate_dynamic(options);
    return;
  }
  if (options.kind == ScaleKind::none) {
    require_default(options.initial == defaults.initial, "initial", options.kind);
  }
  require_default(options.growth == defaults.growth, "growth", options.kind);
  require_default(options.backoff == defaults.backoff, "backoff", options.kind);
  require_default(options.floor == defaults.floor, "floor", options.kind);
  require_default(!options.ceiling, "ceiling", options.kind);
  require_default(options.growth_interval == defaults.growth_interval, "growth_interval",
                  options.kind);
}

// The range that the scale can have under these options.
struct Range {
  float low;
  float high;
};

Range range_of(const LossScalerOptions& options) {
  switch (options.kind) {
    case ScaleKind::none:
      return {1.0F, 1.0F};
    case ScaleKind::static_:
      return {options.initial, options.initial};
    case ScaleKind::dynamic:
      return {options.floor, options.ceiling.value_or(std::numeric_limits<float>::max())};
  }
  MANTISSA_ASSERT(false);
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
  std::vector<std::string> names;
  for (ScaleKind kind : kScaleKinds) {
    if (to_string(kind) == name) {
      return kind;
    }
    names.emplace_back(to_string(kind));
  }
  throw InvalidArgument(
      concat("loss scaler: unknown kind \"", name, "\"", suggestion(name, names)));
}

LossScaler::LossScaler(at::Device device, const LossScalerOptions& options) : options_(options) {
  validate(options);
  const float initial = options.kind == ScaleKind::none ? 1.0F : options.initial;
  scale_ = at::full({}, initial, at::device(device).dtype(at::kFloat));
  growth_tracker_ = at::zeros({}, at::device(device).dtype(at::kInt));
}

void LossScaler::require_on_device(const at::Tensor& tensor, std::string_view where,
                                   std::string_view what) const {
  MANTISSA_CHECK(tensor.device() == scale_.device(), InvalidArgument, where, ": ", what, " is on ",
                 tensor.device(), " but the scale is on ", scale_.device(),
                 "; make the scaler on the device of the model");
}

at::Tensor LossScaler::scale(const at::Tensor& loss) const {
  MANTISSA_CHECK(loss.is_floating_point(), InvalidArgument, "scale: the loss is ",
                 loss.scalar_type(), "; pass a floating-point loss");
  require_on_device(loss, "scale", "the loss");
  return loss.to(at::kFloat).mul(scale_);  // in FP16 the product itself could overflow
}

at::Tensor LossScaler::unscale_(at::TensorList grads) const {
  for (size_t i = 0; i < grads.size(); ++i) {
    MANTISSA_CHECK(grads[i].scalar_type() == at::kFloat, InvalidArgument, "unscale_: gradient ", i,
                   " is ", grads[i].scalar_type(), "; pass the FP32 master gradients");
    require_on_device(grads[i], "unscale_", concat("gradient ", i));
  }
  at::Tensor found_inf = at::zeros_like(scale_);
  if (grads.empty()) {
    return found_inf;
  }
  // One pass multiplies and tests for inf and NaN, so each gradient is read once.
  at::_amp_foreach_non_finite_check_and_unscale_(grads, found_inf, scale_.reciprocal());
  if (range_of(options_).low < 1) {
    // It tests before it multiplies, and dividing by a scale below 1 can overflow.
    at::_amp_foreach_non_finite_check_and_unscale_(grads, found_inf, at::ones_like(scale_));
  }
  return found_inf;
}

void LossScaler::update(const at::Tensor& found_inf) {
  MANTISSA_CHECK(found_inf.scalar_type() == at::kFloat && found_inf.numel() == 1, InvalidArgument,
                 "update: found_inf is ", found_inf.scalar_type(), " of shape ", found_inf.sizes(),
                 "; pass what unscale_ returned");
  require_on_device(found_inf, "update", "found_inf");
  if (options_.kind != ScaleKind::dynamic) {
    return;
  }
  // ATen never grows the scale to inf, but it has no floor and no ceiling.
  at::_amp_update_scale_(scale_, growth_tracker_, found_inf, options_.growth, options_.backoff,
                         options_.growth_interval);
  const Range range = range_of(options_);
  scale_.clamp_(range.low, range.high);
}

tensor::StateDict LossScaler::state_dict() const {
  tensor::StateDict state;
  state.set("kind", std::string(to_string(options_.kind)));
  state.set("scale", scale_);
  state.set("growth_tracker", growth_tracker_);
  return state;
}

void LossScaler::load_state_dict(const tensor::StateDict& state) {
  const std::string& kind = state.text("kind");
  MANTISSA_CHECK(kind == to_string(options_.kind), Corruption, "loss scaler: the state has kind \"",
                 kind, "\", the scaler ", to_string(options_.kind),
                 "; resume with the kind that was saved");
  // Copies into tensors of the right shape and dtype first, so that a bad state changes nothing.
  const at::Tensor scale = at::zeros_like(scale_);
  const at::Tensor tracker = at::zeros_like(growth_tracker_);
  state.copy_to("scale", scale);
  state.copy_to("growth_tracker", tracker);
  const float value = scale.item<float>();
  const int32_t finite_steps = tracker.item<int32_t>();
  const Range range = range_of(options_);
  MANTISSA_CHECK(is_scale(value) && range.low <= value && value <= range.high, Corruption,
                 "loss scaler: the state has scale ", value, "; valid: ", range.low, " to ",
                 range.high, " by the options of this run");
  MANTISSA_CHECK(finite_steps >= 0, Corruption, "loss scaler: the state has growth_tracker ",
                 finite_steps, "; valid: 0 or more");
  scale_.copy_(scale);
  // ATen grows the scale when the tracker equals the interval, never beyond it.
  growth_tracker_.copy_(tracker.clamp_max(options_.growth_interval - 1));
}

}  // namespace mantissa::amp
