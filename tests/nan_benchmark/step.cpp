#include "step.h"

#include <ATen/core/grad_mode.h>

#include "mantissa/amp/autocast.h"
#include "mantissa/tensor/scope.h"

namespace mantissa::nan_benchmark {
namespace {

bool is_finite_tensor(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  return !tensor.defined() || tensor.isfinite().all().item<bool>();
}

}  // namespace

Step::Step(const Case& given, bool is_faulty) : case_(given), is_faulty_(is_faulty) {
  const at::Tensor& x = is_faulty ? given.faulty : given.healthy;
  parameters_ = {{"x", x.clone().requires_grad_()}};
}

at::Tensor Step::loss(const amp::Policy& policy) {
  const amp::Autocast region(policy);
  const at::Tensor output = case_.output(parameters_[0].value, is_faulty_);
  if (!output.defined() || !output.requires_grad()) {
    return output;
  }
  const tensor::Scope scope("loss");
  return output.to(at::kFloat).sum();
}

void Step::run(const amp::Policy& policy, double scale) {
  loss_ = loss(policy);
  if (loss_.defined() && loss_.requires_grad()) {
    const tensor::Scope scope("loss");
    (scale == 1 ? loss_ : loss_.mul(scale)).backward();
  }
}

bool Step::is_finite() const {
  return is_finite_tensor(loss_) && is_finite_tensor(parameters_[0].value.grad());
}

}  // namespace mantissa::nan_benchmark
