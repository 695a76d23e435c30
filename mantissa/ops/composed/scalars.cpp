#include "mantissa/ops/composed/scalars.h"

#include <ATen/ops/full.h>
#include <ATen/ops/where.h>

#include "mantissa/ops/update_checks.h"
#include "mantissa/tensor/wide_dtype.h"

namespace mantissa::ops::composed {

at::Tensor inverse_of_scale(const at::Tensor& scale) {
  if (!scale.defined()) {
    return {};
  }
  return scale.to(tensor::wide_dtype(scale.device())).reciprocal().to(at::kFloat);
}

at::Tensor is_usable(const at::Tensor& inverse_scale) {
  return inverse_scale.isfinite().logical_and(inverse_scale.ne(0));
}

at::Tensor gradient_factor(const GradientUse& use) {
  const at::Tensor inverse = inverse_of_scale(use.scale);
  if (!inverse.defined() || !use.clip_factor.defined()) {
    return inverse.defined() ? inverse : use.clip_factor;
  }
  return inverse.mul(use.clip_factor);
}

at::Tensor skip_of(const GradientUse& use) {
  return use.found_inf.defined() ? use.found_inf.ne(0) : at::Tensor();
}

at::Tensor rate_of(const WeightUpdate& update) {
  const at::Device device = pattern_of(update).device();
  const at::ScalarType wide = tensor::wide_dtype(device);
  if (update.lr_factor.defined()) {
    return update.lr_factor.to(wide).mul(update.lr);
  }
  return at::full({}, update.lr, at::TensorOptions(wide).device(device));
}

void assign_unless(const at::Tensor& skip, const at::Tensor& target, const at::Tensor& value) {
  at::Tensor out = target;
  if (skip.defined()) {
    at::where_out(out, skip, target, value);  // in place, without a copy of either
  } else {
    out.copy_(value);
  }
}

}  // namespace mantissa::ops::composed
