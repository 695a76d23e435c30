#include "mantissa/ops/sgd.h"

#include <ATen/core/grad_mode.h>

#include "mantissa/base/error.h"
#include "mantissa/ops/composed/scalars.h"
#include "mantissa/ops/composed/weights.h"
#include "mantissa/ops/update_checks.h"

namespace mantissa::ops {
namespace {

void check(const std::vector<SgdParameter>& parameters, const SgdOptions& options,
           const GradientUse& use) {
  const at::Device device = pattern_of(parameters[0].weight).device();
  composed::check_use(use, device, "sgd_composed_");
  for (size_t i = 0; i < parameters.size(); ++i) {
    const SgdParameter& parameter = parameters[i];
    const Place where("sgd_composed_", "parameter", i);
    composed::check_update(parameter.weight, device, where);
    check_has_momentum(parameter.momentum, options.momentum, where);
    if (parameter.momentum.values.defined()) {
      composed::check_moment(parameter.momentum, parameter.weight, where.part("momentum"));
    }
  }
}

// The order of operations is that of the reference.
void update(const SgdParameter& parameter, const SgdOptions& options, const at::Tensor& factor,
            const at::Tensor& skip) {
  const at::Tensor rate = composed::rate_of(parameter.weight);
  const at::Tensor weights = composed::load_weights(parameter.weight);
  at::Tensor direction =
      composed::penalized_gradient(parameter.weight, factor, options.decay, weights);
  at::Tensor momentum;
  if (parameter.momentum.values.defined()) {
    const auto decay = static_cast<float>(options.momentum);
    momentum = parameter.momentum.values.mul(decay).add_(direction);
    direction = options.kind == Momentum::nesterov ? direction.add(momentum.mul(decay)) : momentum;
  }
  const at::Tensor decrement = direction.mul(rate.to(at::kFloat));
  if (momentum.defined()) {
    composed::assign_unless(skip, parameter.momentum.values, momentum);
  }
  composed::decrease_weights(parameter.weight, weights, decrement, rate, options.decay, skip);
}

}  // namespace

void sgd_composed_(const std::vector<SgdParameter>& parameters, const SgdOptions& options,
                   const GradientUse& use) {
  if (parameters.empty()) {
    return;
  }
  const at::NoGradGuard no_grad;
  check(parameters, options, use);
  const at::Tensor factor = composed::gradient_factor(use);
  const at::Tensor skip = composed::skip_of(use);
  for (const SgdParameter& parameter : parameters) {
    update(parameter, options, factor, skip);
  }
}

}  // namespace mantissa::ops
