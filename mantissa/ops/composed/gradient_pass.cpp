#include "mantissa/ops/gradient_pass.h"

#include <cmath>
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

// Counts as in GradientStatistics, on the device: int64.
at::Tensor counts_of(const at::Tensor& values) {
  const at::Tensor m = values.abs();
  const at::Tensor is_finite = m.isfinite();
  const at::Tensor is_small = m.le(0x1p-25);
  const at::Tensor is_zero = m.eq(0);
  const auto but = [](const at::Tensor& a, const at::Tensor& b) {
    return a.logical_and(b.logical_not()).sum();
  };
  return at::stack({is_zero.sum(), is_finite.logical_not().sum(), but(m.lt(0x1p-126), is_zero),
                    but(is_small, is_zero), but(m.lt(0x1p-14 - 0x1p-25), is_small),
                    m.ge(65520).logical_and(is_finite).sum()});
}

// The largest and the smallest magnitude, and the norm.
at::Tensor sizes_of(const at::Tensor& values, const at::Tensor& norm) {
  const at::Tensor m = values.abs();
  const at::Tensor is_finite = m.isfinite();
  const at::Tensor smallest =
      m.masked_fill(is_finite.logical_and(m.ne(0)).logical_not(), HUGE_VAL).min();
  return at::stack({m.masked_fill(is_finite.logical_not(), 0).max().to(norm.scalar_type()),
                    smallest.masked_fill(smallest.isinf(), 0).to(norm.scalar_type()), norm});
}

// Of the gradients that are not empty, in order.
void read_statistics(const std::vector<at::Tensor>& counts, const std::vector<at::Tensor>& sizes,
                     std::vector<GradientStatistics>& statistics) {
  if (counts.empty()) {
    return;
  }
  const at::Tensor all_counts = at::stack(counts).cpu();
  const at::Tensor all_sizes = at::stack(sizes).cpu().to(at::kDouble);
  const auto* count = all_counts.const_data_ptr<int64_t>();
  const auto* size = all_sizes.const_data_ptr<double>();
  for (GradientStatistics& each : statistics) {
    if (each.count == 0) {
      continue;
    }
    each.zeros = count[0];
    each.non_finite = count[1];
    each.fp32_subnormal = count[2];
    each.fp16_zero = count[3];
    each.fp16_subnormal = count[4];
    each.fp16_infinite = count[5];
    each.largest = static_cast<float>(size[0]);
    each.smallest = static_cast<float>(size[1]);
    each.norm = size[2];
    count += 6;
    size += 3;
  }
}

}  // namespace

GradientPass gradient_pass_composed(at::TensorList gradients, const at::Tensor& scale,
                                    at::Device device, std::optional<at::ScalarType> sums,
                                    std::vector<GradientStatistics>* statistics) {
  const at::NoGradGuard no_grad;
  const at::ScalarType dtype = sums.value_or(tensor::wide_dtype(device));
  check_scalar(scale, device, "scale", "gradient_pass");
  const at::Tensor inverse = composed::inverse_of_scale(scale);
  std::vector<at::Tensor> norms;
  std::vector<at::Tensor> counts;
  std::vector<at::Tensor> sizes;
  if (statistics != nullptr) {
    statistics->assign(gradients.size(), {});
  }
  for (size_t i = 0; i < gradients.size(); ++i) {
    check_gradient(gradients[i], device, Place("gradient_pass", "gradient", i));
    if (gradients[i].numel() > 0) {
      const at::Tensor gradient = to_strided(gradients[i]).to(at::kFloat);
      const at::Tensor unscaled = inverse.defined() ? gradient.mul(inverse) : gradient;
      norms.push_back(norm_of(unscaled, dtype));
      if (statistics != nullptr) {
        (*statistics)[i].count = unscaled.numel();
        counts.push_back(counts_of(unscaled));
        sizes.push_back(sizes_of(unscaled, norms.back()));
      }
    }
  }
  if (statistics != nullptr) {
    read_statistics(counts, sizes, *statistics);
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
