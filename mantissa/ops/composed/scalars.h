#pragma once

#include <ATen/core/Tensor.h>

#include "mantissa/ops/weight_update.h"

/// The passes over weights and gradients as compositions of ATen operations: on any device that
/// ATen knows, and without a word to the host. Each operation rounds once, in the order of the
/// references, so that the results are theirs.
namespace mantissa::ops::composed {

/// 1 / scale, rounded to FP32; undefined for an undefined scale, which is 1.
at::Tensor inverse_of_scale(const at::Tensor& scale);

/// 0-d Bool: whether gradients can be told from their products with the scale.
at::Tensor is_usable(const at::Tensor& inverse_scale);

/// (1 / scale) * clip_factor; undefined: 1.
at::Tensor gradient_factor(const GradientUse& use);

/// 0-d Bool; undefined: never.
at::Tensor skip_of(const GradientUse& use);

/// lr * lr_factor, 0-d in the widest dtype of the device.
at::Tensor rate_of(const WeightUpdate& update);

/// target = value, unless `skip`. A selection and no arithmetic: NaN times 0 would be NaN.
void assign_unless(const at::Tensor& skip, const at::Tensor& target, const at::Tensor& value);

}  // namespace mantissa::ops::composed
