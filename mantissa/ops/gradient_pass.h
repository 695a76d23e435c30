#pragma once

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"

namespace mantissa::ops {

/// What one reading of all gradients says about them. 0-d FP32 tensors.
struct GradientPass {
  at::Tensor found_inf;  // 1 when any gradient is not finite before or after unscaling, else 0
  at::Tensor norm;       // L2 norm of all unscaled gradients together
};

/// Reads every gradient once, as it is, and writes none. They may be FP32, BF16 and FP16 mixed, of
/// any strides, or sparse (duplicate indices are added first). `scale` is the loss scale, 0-d
/// FP32; undefined means 1. Unscaling is the FP32 product with 1 / scale, so a scale whose
/// inverse is 0 or not finite sets `found_inf`. No gradients: found_inf 0, norm 0.
///
/// The norm is summed in FP64: for finite unscaled gradients it is never NaN, and it is the largest
/// FP32 number where it would exceed it. It does not depend on the number of threads. CPU only.
[[nodiscard]] MANTISSA_API GradientPass gradient_pass(at::TensorList gradients,
                                                      const at::Tensor& scale = {});

/// The same, element by element: what `gradient_pass` is tested against.
[[nodiscard]] MANTISSA_API GradientPass gradient_pass_reference(at::TensorList gradients,
                                                                const at::Tensor& scale = {});

}  // namespace mantissa::ops
