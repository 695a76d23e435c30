#include "mantissa/ops/sgd.h"

#include <atomic>

#include "mantissa/base/error.h"
#include "mantissa/ops/cpu/optimizer_passes.h"
#include "mantissa/ops/moment_storage.h"
#include "mantissa/ops/update_checks.h"

namespace mantissa::ops {
namespace {

std::vector<SgdParameter> checked(const std::vector<SgdParameter>& parameters,
                                  const SgdOptions& options) {
  std::vector<SgdParameter> result;
  result.reserve(parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    const SgdParameter& parameter = parameters[i];
    const Place where("sgd_", "parameter", i);
    result.push_back(parameter);
    result.back().weight = ops::checked(parameter.weight, where);
    check_has_momentum(parameter.momentum, options.momentum, where);
    if (parameter.momentum.values.defined()) {
      check_moment(parameter.momentum, pattern_of(parameter.weight), where.part("momentum"));
    }
  }
  return result;
}

cpu::SgdConstants constants_of(const SgdOptions& options, const GradientUse& use) {
  const auto momentum = static_cast<float>(options.momentum);
  return {gradient_factor(use, "sgd_"), momentum,
          options.kind == Momentum::nesterov ? momentum : 0.0F};
}

cpu::SgdView view_of(const SgdParameter& parameter, const SgdOptions& options,
                     std::atomic<int64_t>* lost) {
  const WeightUpdate& weight = parameter.weight;
  const bool decoupled = options.decay == WeightDecay::decoupled;
  cpu::SgdView view = {};
  view.weight = weight_view(weight, lost);
  view.momentum = moment_view(parameter.momentum, CodeMap::with_sign);
  view.lr = static_cast<float>(weight.lr);
  view.coupled_decay = decoupled ? 0.0F : static_cast<float>(weight.weight_decay);
  view.decoupled_decay = decoupled ? static_cast<float>(weight.lr * weight.weight_decay) : 0.0F;
  return view;
}

void reference_update(const cpu::SgdView& view, const cpu::SgdConstants& constants,
                      const SgdParameter& parameter) {
  const at::Tensor gradient = parameter.weight.gradient.to(at::kFloat);
  std::vector<float> weights = weights_reference(parameter.weight);
  const bool has_momentum = parameter.momentum.values.defined();
  std::vector<float> momentum;
  if (has_momentum) {
    momentum = moments_reference(parameter.momentum, CodeMap::with_sign);
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    float& w = weights[i];
    float direction = (gradient.const_data_ptr<float>()[i] * constants.gradient_factor) +
                      (view.coupled_decay * w);
    if (has_momentum) {
      float& b = momentum[i];
      b = (constants.momentum * b) + direction;
      direction = constants.lookahead != 0 ? direction + (constants.lookahead * b) : b;
    }
    w = w - ((view.lr * direction) + (view.decoupled_decay * w));
  }
  store_weights_reference(parameter.weight, weights);
  if (has_momentum) {
    store_moments_reference(parameter.momentum, CodeMap::with_sign, momentum);
  }
}

}  // namespace

bool sgd_(const std::vector<SgdParameter>& parameters, const SgdOptions& options,
          const GradientUse& use) {
  const std::vector<SgdParameter> ready = checked(parameters, options);
  const cpu::SgdConstants constants = constants_of(options, use);
  if (must_skip(use, "sgd_")) {
    return false;
  }
  std::vector<std::atomic<int64_t>> lost(ready.size());
  std::vector<cpu::SgdView> views;
  views.reserve(ready.size());
  for (const SgdParameter& parameter : ready) {
    views.push_back(view_of(parameter, options, &lost[views.size()]));
  }
  cpu::sgd(views, constants);
  for (size_t i = 0; i < ready.size(); ++i) {
    mark_changed(ready[i].weight);
    if (ready[i].weight.lost.defined()) {
      ready[i].weight.lost.add_(lost[i].load());
    }
  }
  return true;
}

bool sgd_reference_(const std::vector<SgdParameter>& parameters, const SgdOptions& options,
                    const GradientUse& use) {
  const std::vector<SgdParameter> ready = checked(parameters, options);
  const cpu::SgdConstants constants = constants_of(options, use);
  if (must_skip(use, "sgd_")) {
    return false;
  }
  for (const SgdParameter& parameter : ready) {
    reference_update(view_of(parameter, options, nullptr), constants, parameter);
  }
  return true;
}

}  // namespace mantissa::ops
