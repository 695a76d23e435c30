#include "mantissa/ops/ema.h"

#include <ATen/core/grad_mode.h>

#include "mantissa/base/error.h"
#include "mantissa/ops/composed/scalars.h"
#include "mantissa/ops/composed/weights.h"
#include "mantissa/ops/cpu/optimizer_passes.h"
#include "mantissa/ops/update_checks.h"

namespace mantissa::ops {
namespace {

void check(const std::vector<EmaParameter>& parameters, at::Device device, const char* operation) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Place where(operation, "parameter", i);
    check_weight(parameters[i].weight, device, where);
    const at::Tensor& shadow = parameters[i].shadow;
    const at::Tensor& pattern = pattern_of(parameters[i].weight);
    MANTISSA_CHECK(shadow.defined() && shadow.device() == device &&
                       shadow.scalar_type() == at::kFloat && shadow.sizes() == pattern.sizes() &&
                       shadow.strides() == pattern.strides(),
                   InvalidArgument, where,
                   ": the shadow does not fit the weight; make it with weights_of(weight)");
  }
}

}  // namespace

void ema_(const std::vector<EmaParameter>& parameters, double decay) {
  check(parameters, at::kCPU, "ema_");
  std::vector<cpu::EmaView> views;
  views.reserve(parameters.size());
  for (const EmaParameter& parameter : parameters) {
    cpu::EmaView view = {};
    view.weight = weight_view(parameter.weight, nullptr);
    view.shadow = parameter.shadow.mutable_data_ptr<float>();
    view.count = parameter.shadow.numel();
    views.push_back(view);
  }
  cpu::ema(views, static_cast<float>(1 - decay));
}

void ema_reference_(const std::vector<EmaParameter>& parameters, double decay) {
  check(parameters, at::kCPU, "ema_");
  const auto rate = static_cast<float>(1 - decay);
  for (const EmaParameter& parameter : parameters) {
    const std::vector<float> weights = weights_reference(parameter.weight);
    auto* shadow = parameter.shadow.mutable_data_ptr<float>();
    for (size_t i = 0; i < weights.size(); ++i) {
      shadow[i] = shadow[i] + (rate * (weights[i] - shadow[i]));
    }
  }
}

void ema_composed_(const std::vector<EmaParameter>& parameters, const at::Tensor& rate,
                   const at::Tensor& skip) {
  if (parameters.empty()) {
    return;
  }
  const at::NoGradGuard no_grad;
  const at::Device device = pattern_of(parameters[0].weight).device();
  check(parameters, device, "ema_composed_");
  check_scalar(rate, device, "rate", "ema_composed_");
  for (const EmaParameter& parameter : parameters) {
    const at::Tensor& shadow = parameter.shadow;
    const at::Tensor difference = composed::load_weights(parameter.weight).sub(shadow);
    composed::assign_unless(skip, shadow, difference.mul_(rate).add_(shadow));
  }
}

}  // namespace mantissa::ops
