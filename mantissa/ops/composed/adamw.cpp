#include "mantissa/ops/adamw.h"

#include <cmath>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>

#include "mantissa/base/error.h"
#include "mantissa/ops/composed/scalars.h"
#include "mantissa/ops/composed/weights.h"
#include "mantissa/ops/update_checks.h"
#include "mantissa/tensor/wide_dtype.h"

namespace mantissa::ops {
namespace {

void check(const std::vector<AdamwParameter>& parameters, const GradientUse& use) {
  const at::Device device = pattern_of(parameters[0].weight).device();
  composed::check_use(use, device, "adamw_composed_");
  for (size_t i = 0; i < parameters.size(); ++i) {
    const AdamwParameter& parameter = parameters[i];
    const Place where("adamw_composed_", "parameter", i);
    composed::check_update(parameter.weight, device, where);
    composed::check_moment(parameter.exp_avg, parameter.weight, where.part("exp_avg"));
    composed::check_moment(parameter.exp_avg_sq, parameter.weight, where.part("exp_avg_sq"));
    check_step(parameter.step, device, where);
  }
}

// 1 - beta^step for all of `steps`, as -expm1(step ln beta), which FP32 keeps to a few roundings
// too. In FP64 it differs from 1 - pow(beta, step) by that one's cancellation, at most
// 2^-52 / (1 - beta) relative.
at::Tensor bias_correction(double beta, const at::Tensor& steps) {
  return steps.mul(std::log(beta)).expm1_().neg_();
}

// Rounded once, as the reference does it. On the CPU ATen calls a vector library whose roots are
// within a unit in the last place only: taken in FP64 that is too little to change the FP32 root,
// which is at least 2^-50 away from any midpoint of two FP32 numbers, relative.
at::Tensor root(const at::Tensor& v) {
  return v.is_cpu() ? v.to(at::kDouble).sqrt_().to(at::kFloat) : v.sqrt();
}

struct Constants {
  at::Tensor correction1;               // 1 - beta1^step
  at::Tensor inverse_sqrt_correction2;  // FP32
};

// One element for each parameter, so that few operations do for all of them.
Constants constants_of(const std::vector<AdamwParameter>& parameters, const AdamwOptions& options) {
  std::vector<at::Tensor> counts;
  counts.reserve(parameters.size());
  for (const AdamwParameter& parameter : parameters) {
    counts.push_back(parameter.step);
  }
  const at::Tensor steps =
      at::stack(counts).add_(1).to(tensor::wide_dtype(parameters[0].step.device()));
  return {bias_correction(options.beta1, steps),
          bias_correction(options.beta2, steps).sqrt_().reciprocal_().to(at::kFloat)};
}

// The order of operations is that of the reference.
void update(const AdamwParameter& parameter, const AdamwOptions& options,
            const at::Tensor& correction1, const at::Tensor& inverse_sqrt_correction2,
            const at::Tensor& factor, const at::Tensor& skip) {
  const at::Tensor rate = composed::rate_of(parameter.weight);
  const at::Tensor weights = composed::load_weights(parameter.weight);
  at::Tensor gradient =
      composed::penalized_gradient(parameter.weight, factor, options.decay, weights);
  at::Tensor m = parameter.exp_avg.values.mul(static_cast<float>(options.beta1))
                     .add_(gradient.mul(static_cast<float>(1 - options.beta1)));
  at::Tensor v = parameter.exp_avg_sq.values.mul(static_cast<float>(options.beta2))
                     .add_(gradient.mul(static_cast<float>(1 - options.beta2)).mul_(gradient));
  gradient.reset();  // what is not needed goes at once: temporaries are as large as the parameter
  const at::Tensor decrement =
      m.div(root(v).mul_(inverse_sqrt_correction2).add_(static_cast<float>(options.eps)))
          .mul_(rate.div(correction1).to(at::kFloat));
  composed::assign_unless(skip, parameter.exp_avg.values, m);
  m.reset();
  composed::assign_unless(skip, parameter.exp_avg_sq.values, v);
  v.reset();
  composed::decrease_weights(parameter.weight, weights, decrement, rate, options.decay, skip);
  composed::assign_unless(skip, parameter.step, parameter.step.add(1));
}

}  // namespace

void adamw_composed_(const std::vector<AdamwParameter>& parameters, const AdamwOptions& options,
                     const GradientUse& use) {
  if (parameters.empty()) {
    return;
  }
  const at::NoGradGuard no_grad;
  check(parameters, use);
  const at::Tensor factor = composed::gradient_factor(use);
  const at::Tensor skip = composed::skip_of(use);
  const Constants constants = constants_of(parameters, options);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    update(parameters[i], options, constants.correction1.select(0, index),
           constants.inverse_sqrt_correction2.select(0, index), factor, skip);
  }
}

}  // namespace mantissa::ops
