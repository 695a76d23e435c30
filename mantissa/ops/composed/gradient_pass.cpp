#include "mantissa/ops/gradient_pass.h"

#include <limits>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "mantissa/base/error.h"
#include "mantissa/ops/composed/scalars.h"
#include "mantissa/ops/update_checks.h"
#include "mantissa/tensor/wide_dtype.h"

namespace mantissa::ops {
namespace {

constexpr float kMax = std::numeric_limits<float>::max();

// Finite exactly when all of `values`, FP32 numbers or norms, are. In FP64 no square overflows; in
// FP32 they are of the values relative to the largest, and a norm beyond the range is kMax.
at::Tensor norm_of(const at::Tensor& values, at::ScalarType sums) {
  if (sums == at::kDouble) {
    return at::linalg_vector_norm(values, 2, at::OptionalIntArrayRef(), false, at::kDouble);
  }
  const at::Tensor largest = values.abs().max();
  const at::Tensor unit = largest.masked_fill(largest.eq(0), 1);
  const at::Tensor norm = at::linalg_vector_norm(values.div(unit), 2).mul_(largest);
  return at::where(largest.isfinite(), norm.clamp_max_(kMax), largest);
}

}  // namespace

GradientPass gradient_pass_composed(at::TensorList gradients, const at::Tensor& scale,
                                    at::Device device, std::optional<at::ScalarType> sums) {
  const at::NoGradGuard no_grad;
  const at::ScalarType dtype = sums.value_or(tensor::wide_dtype(device));
  check_scalar(scale, device, "scale", "gradient_pass");
  const at::Tensor inverse = composed::inverse_of_scale(scale);
  std::vector<at::Tensor> norms;
  for (size_t i = 0; i < gradients.size(); ++i) {
    check_gradient(gradients[i], device, concat("gradient_pass: gradient ", i));
    if (gradients[i].numel() > 0) {
      const at::Tensor gradient = to_strided(gradients[i]).to(at::kFloat);
      norms.push_back(norm_of(inverse.defined() ? gradient.mul(inverse) : gradient, dtype));
    }
  }
  const auto fp32 = at::TensorOptions(at::kFloat).device(device);
  if (norms.empty()) {
    return {at::zeros({}, fp32), at::zeros({}, fp32)};
  }
  const at::Tensor norm = norm_of(at::stack(norms), dtype);
  at::Tensor is_fine = norm.isfinite();
  if (inverse.defined()) {
    is_fine = is_fine.logical_and(composed::is_usable(inverse));
  }
  return {is_fine.logical_not().to(at::kFloat),
          at::where(is_fine, norm.clamp_max(kMax), norm).to(at::kFloat)};
}

at::Tensor unscale_factor(const at::Tensor& scale) {
  at::Tensor inverse = composed::inverse_of_scale(scale);
  if (!inverse.defined()) {
    return inverse;
  }
  return inverse.masked_fill(composed::is_usable(inverse).logical_not(),
                             std::numeric_limits<double>::quiet_NaN());
}

}  // namespace mantissa::ops
