#include "mantissa/ops/adamw.h"

#include <atomic>
#include <cmath>

#include "mantissa/base/error.h"
#include "mantissa/ops/cpu/optimizer_passes.h"
#include "mantissa/ops/moment_storage.h"
#include "mantissa/ops/update_checks.h"

namespace mantissa::ops {
namespace {

std::vector<AdamwParameter> checked(const std::vector<AdamwParameter>& parameters) {
  std::vector<AdamwParameter> result;
  result.reserve(parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    const AdamwParameter& parameter = parameters[i];
    const Place where("adamw_", "parameter", i);
    result.push_back(parameter);
    result.back().weight = ops::checked(parameter.weight, where);
    check_moment(parameter.exp_avg, pattern_of(parameter.weight), where.part("exp_avg"));
    check_moment(parameter.exp_avg_sq, pattern_of(parameter.weight), where.part("exp_avg_sq"));
    check_step(parameter.step, at::kCPU, where);
  }
  return result;
}

void count_step(const at::Tensor& step) {
  ++*step.mutable_data_ptr<int64_t>();
  mark_changed(step);
}

cpu::AdamwConstants constants_of(const AdamwOptions& options, const GradientUse& use) {
  return {gradient_factor(use, "adamw_"),        static_cast<float>(options.beta1),
          static_cast<float>(1 - options.beta1), static_cast<float>(options.beta2),
          static_cast<float>(1 - options.beta2), static_cast<float>(options.eps)};
}

cpu::AdamwView view_of(const AdamwParameter& parameter, const AdamwOptions& options,
                       std::atomic<int64_t>* lost) {
  const WeightUpdate& weight = parameter.weight;
  const auto step = static_cast<double>(*parameter.step.const_data_ptr<int64_t>());
  const double correction1 = 1 - std::pow(options.beta1, step);
  const double correction2 = 1 - std::pow(options.beta2, step);
  cpu::AdamwView view = {};
  view.weight = weight_view(weight, lost);
  view.exp_avg = moment_view(parameter.exp_avg, CodeMap::with_sign);
  view.exp_avg_sq = moment_view(parameter.exp_avg_sq, CodeMap::nonnegative);
  view.step_size = static_cast<float>(weight.lr / correction1);
  view.inverse_sqrt_correction2 = static_cast<float>(1 / std::sqrt(correction2));
  const bool decoupled = options.decay == WeightDecay::decoupled;
  view.coupled_decay = decoupled ? 0.0F : static_cast<float>(weight.weight_decay);
  view.decoupled_decay = decoupled ? static_cast<float>(weight.lr * weight.weight_decay) : 0.0F;
  return view;
}

void reference_update(const cpu::AdamwView& view, const cpu::AdamwConstants& constants,
                      const AdamwParameter& parameter) {
  const at::Tensor gradient = parameter.weight.gradient.to(at::kFloat);
  std::vector<float> weights = weights_reference(parameter.weight);
  std::vector<float> exp_avg = moments_reference(parameter.exp_avg, CodeMap::with_sign);
  std::vector<float> exp_avg_sq = moments_reference(parameter.exp_avg_sq, CodeMap::nonnegative);
  for (size_t i = 0; i < weights.size(); ++i) {
    float& w = weights[i];
    float& m = exp_avg[i];
    float& v = exp_avg_sq[i];
    const float g = (gradient.const_data_ptr<float>()[i] * constants.gradient_factor) +
                    (view.coupled_decay * w);
    m = (constants.beta1 * m) + (constants.one_minus_beta1 * g);
    v = (constants.beta2 * v) + ((constants.one_minus_beta2 * g) * g);
    const float root = std::sqrt(v) * view.inverse_sqrt_correction2;
    const float decrement =
        (view.step_size * (m / (root + constants.eps))) + (view.decoupled_decay * w);
    w = w - decrement;
  }
  store_weights_reference(parameter.weight, weights);
  store_moments_reference(parameter.exp_avg, CodeMap::with_sign, exp_avg);
  store_moments_reference(parameter.exp_avg_sq, CodeMap::nonnegative, exp_avg_sq);
}

}  // namespace

bool adamw_(const std::vector<AdamwParameter>& parameters, const AdamwOptions& options,
            const GradientUse& use) {
  const std::vector<AdamwParameter> ready = checked(parameters);
  const cpu::AdamwConstants constants = constants_of(options, use);
  if (must_skip(use, "adamw_")) {
    return false;
  }
  std::vector<std::atomic<int64_t>> lost(ready.size());
  std::vector<cpu::AdamwView> views;
  views.reserve(ready.size());
  for (const AdamwParameter& parameter : ready) {
    count_step(parameter.step);
    views.push_back(view_of(parameter, options, &lost[views.size()]));
  }
  cpu::adamw(views, constants);
  for (size_t i = 0; i < ready.size(); ++i) {
    mark_changed(ready[i].weight);
    if (ready[i].weight.lost.defined()) {
      ready[i].weight.lost.add_(lost[i].load());
    }
  }
  return true;
}

bool adamw_reference_(const std::vector<AdamwParameter>& parameters, const AdamwOptions& options,
                      const GradientUse& use) {
  const std::vector<AdamwParameter> ready = checked(parameters);
  const cpu::AdamwConstants constants = constants_of(options, use);
  if (must_skip(use, "adamw_")) {
    return false;
  }
  for (const AdamwParameter& parameter : ready) {
    count_step(parameter.step);
    reference_update(view_of(parameter, options, nullptr), constants, parameter);
  }
  return true;
}

}  // namespace mantissa::ops
