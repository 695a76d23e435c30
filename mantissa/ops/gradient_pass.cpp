#include "mantissa/ops/gradient_pass.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <ATen/ops/full.h>

#include "mantissa/base/error.h"
#include "mantissa/ops/cpu/optimizer_passes.h"
#include "mantissa/ops/update_checks.h"

namespace mantissa::ops {
namespace {

// Dense in memory, in whatever order: neither answer depends on it but by rounding.
std::vector<at::Tensor> readable(at::TensorList gradients) {
  std::vector<at::Tensor> result;
  for (size_t i = 0; i < gradients.size(); ++i) {
    check_gradient(gradients[i], at::kCPU, concat("gradient_pass: gradient ", i));
    const at::Tensor dense = to_strided(gradients[i]);
    result.push_back(dense.is_non_overlapping_and_dense() ? dense : dense.contiguous());
  }
  return result;
}

GradientPass conclude(double sum_of_squares, float inverse_scale, bool any) {
  const bool usable_scale = std::isfinite(inverse_scale) && inverse_scale != 0;
  const bool found_inf = any && (!std::isfinite(sum_of_squares) || !usable_scale);
  double norm = std::sqrt(sum_of_squares);
  if (!found_inf) {
    norm = std::min(norm, static_cast<double>(std::numeric_limits<float>::max()));
  }
  const auto fp32 = at::TensorOptions(at::kFloat);
  return {at::full({}, found_inf ? 1.0 : 0.0, fp32), at::full({}, norm, fp32)};
}

}  // namespace

GradientPass gradient_pass(at::TensorList gradients, const at::Tensor& scale) {
  const float inverse_scale = inverse_of_scale(scale, "gradient_pass");
  const std::vector<at::Tensor> tensors = readable(gradients);
  std::vector<cpu::GradientView> views;
  int64_t count = 0;
  for (const at::Tensor& tensor : tensors) {
    views.push_back({tensor.const_data_ptr(), tensor.scalar_type(), tensor.numel()});
    count += tensor.numel();
  }
  return conclude(cpu::sum_of_unscaled_squares(views, inverse_scale), inverse_scale, count > 0);
}

GradientPass gradient_pass_reference(at::TensorList gradients, const at::Tensor& scale) {
  const float inverse_scale = inverse_of_scale(scale, "gradient_pass");
  double sum = 0;
  int64_t count = 0;
  for (const at::Tensor& tensor : readable(gradients)) {
    const at::Tensor flat = tensor.to(at::kFloat).contiguous();
    for (int64_t i = 0; i < flat.numel(); ++i) {
      const double value = flat.const_data_ptr<float>()[i] * inverse_scale;
      sum += value * value;
    }
    count += flat.numel();
  }
  return conclude(sum, inverse_scale, count > 0);
}

}  // namespace mantissa::ops
