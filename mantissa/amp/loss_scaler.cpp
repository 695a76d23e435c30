#include "mantissa/amp/loss_scaler.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros_like.h>

#include "mantissa/amp/unscale.h"
#include "mantissa/base/error.h"

namespace mantissa::amp {
namespace {

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

const LossScalerOptions& checked(const LossScalerOptions& options) {
  validate(options);
  return options;
}

}  // namespace

LossScaler::LossScaler(at::Device device, const LossScalerOptions& options)
    : options_(checked(options)), state_(initial_state(options), device) {}

void LossScaler::require_on_device(const at::Tensor& tensor, std::string_view where,
                                   std::string_view what) const {
  MANTISSA_CHECK(tensor.device() == value().device(), InvalidArgument, where, ": ", what, " is on ",
                 tensor.device(), " but the scale is on ", value().device(),
                 "; make the scaler on the device of the model");
}

at::Tensor LossScaler::scale(const at::Tensor& loss) const {
  MANTISSA_CHECK(loss.is_floating_point(), InvalidArgument, "scale: the loss is ",
                 loss.scalar_type(), "; pass a floating-point loss");
  require_on_device(loss, "scale", "the loss");
  return loss.to(at::kFloat).mul(value());  // in FP16 the product itself could overflow
}

at::Tensor LossScaler::unscale_(at::TensorList grads) const {
  for (size_t i = 0; i < grads.size(); ++i) {
    MANTISSA_CHECK(grads[i].scalar_type() == at::kFloat, InvalidArgument, "unscale_: gradient ", i,
                   " is ", grads[i].scalar_type(), "; pass the FP32 master gradients");
    require_on_device(grads[i], "unscale_", concat("gradient ", i));
  }
  return unscale_and_check_(grads, value(), range_of(options_).low < 1);
}

void LossScaler::require_found_inf(const at::Tensor& found_inf) const {
  MANTISSA_CHECK(found_inf.scalar_type() == at::kFloat && found_inf.numel() == 1, InvalidArgument,
                 "update: found_inf is ", found_inf.scalar_type(), " of shape ", found_inf.sizes(),
                 "; pass what unscale_ returned");
  require_on_device(found_inf, "update", "found_inf");
}

void LossScaler::update(at::TensorList found_infs) {
  MANTISSA_CHECK(!found_infs.empty(), InvalidArgument,
                 "update: the list of found_inf is empty; pass that of each optimizer");
  at::Tensor any = at::zeros_like(value());
  for (const at::Tensor& found_inf : found_infs) {
    require_found_inf(found_inf);
    any = at::maximum(any, found_inf.reshape({}));
  }
  update(any);
}

void LossScaler::update(const at::Tensor& found_inf, const at::Tensor& model_fault) {
  require_found_inf(found_inf);
  if (model_fault.defined()) {
    MANTISSA_CHECK(model_fault.numel() == 1, InvalidArgument, "update: model_fault has shape ",
                   model_fault.sizes(), "; pass one value");
    require_on_device(model_fault, "update", "model_fault");
  }
  if (value().is_cpu()) {
    const auto is_set = [](const at::Tensor& flag) {
      return flag.defined() && *flag.to(at::kFloat).const_data_ptr<float>() != 0;
    };
    const bool skips = is_set(found_inf);
    const bool is_models = is_set(model_fault);
    state_.write(next_state(options_, state_.read(),
                            !skips      ? Overflow::none
                            : is_models ? Overflow::model
                                        : Overflow::scale));
  } else {
    state_.advance(options_, found_inf,
                   model_fault.defined() ? model_fault : at::zeros_like(found_inf));
  }
}

tensor::StateDict LossScaler::state_dict() const {
  tensor::StateDict state;
  state.set("kind", std::string(to_string(options_.kind)));
  for (const auto& [name, tensor] : state_.named()) {
    state.set(name, tensor);
  }
  return state;
}

void LossScaler::load_state_dict(const tensor::StateDict& state) {
  const std::string& kind = state.text("kind");
  MANTISSA_CHECK(kind == to_string(options_.kind), Corruption, "loss scaler: the state has kind \"",
                 kind, "\", the scaler ", to_string(options_.kind),
                 "; resume with the kind that was saved");
  // Into a scaler of the same shapes and dtypes first, so that a bad state changes nothing.
  const ScaleTensors loaded(ScaleState(), at::kCPU);
  for (const auto& [name, tensor] : loaded.named()) {
    state.copy_to(name, tensor);
  }
  const ScaleState values = loaded.read();
  const Range range = range_of(options_);
  const auto require = [](bool holds, const char* name, auto value, const auto&... valid) {
    MANTISSA_CHECK(holds, Corruption, "loss scaler: the state has ", name, " ", value,
                   "; valid: ", valid...);
  };
  require(std::isnormal(values.scale) && range.low <= values.scale && values.scale <= range.high,
          "scale", values.scale, range.low, " to ", range.high, " by the options of this run");
  require(values.growth_tracker >= -options_.growth_delay, "growth_tracker", values.growth_tracker,
          -options_.growth_delay, " or more");
  require(values.overflows_left >= 1 && values.overflows_left <= options_.hysteresis,
          "overflows_left", values.overflows_left, "1 to ", options_.hysteresis);
  require(std::isfinite(values.settled) && values.settled >= 0, "settled", values.settled,
          "0 or more");
  require(values.skipped_in_row >= 0 && values.skipped >= values.skipped_in_row, "skipped",
          values.skipped, "at least skipped_in_row, which is ", values.skipped_in_row);
  for (const auto& [name, tensor] : state_.named()) {
    state.copy_to(name, tensor);
  }
}

}  // namespace mantissa::amp
