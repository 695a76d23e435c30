#pragma once

#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"
#include "mantissa/ops/gradient_statistics.h"

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
/// FP32 number where it would exceed it. It depends neither on the number of threads nor on the
/// instruction set. `statistics` becomes one for each gradient, of the same reading. Fused, on the
/// CPU.
[[nodiscard]] MANTISSA_API GradientPass
gradient_pass(at::TensorList gradients, const at::Tensor& scale = {},
              std::vector<GradientStatistics>* statistics = nullptr);

/// The same as ATen operations, for gradients on any one `device` and without waiting for it. Sums
/// are in FP64, so that the norm is that of the fused pass to a rounding of FP32; or, where
/// `device` has none, in FP32 of the gradients relative to the largest one of their tensor. `sums`,
/// Double or Float, overrides that. It does wait, once, for `statistics`.
[[nodiscard]] MANTISSA_API GradientPass gradient_pass_composed(
    at::TensorList gradients, const at::Tensor& scale, at::Device device,
    std::optional<at::ScalarType> sums = {}, std::vector<GradientStatistics>* statistics = nullptr);

/// The same by the kernels of `device` where it has some (device_kernels.h), which sum in FP64 in
/// trees that depend on sizes alone; composed where it has none. Waits for nothing.
[[nodiscard]] MANTISSA_API GradientPass gradient_pass_enqueued(at::TensorList gradients,
                                                               const at::Tensor& scale,
                                                               at::Device device);

/// 1 / scale in FP32, 0-d on the device of the scale, for gradients that are added up unscaled: NaN
/// when gradients cannot be told from their products with the scale, so that none looks like 0.
/// Undefined for an undefined scale.
MANTISSA_API at::Tensor unscale_factor(const at::Tensor& scale);

/// The same, element by element: what `gradient_pass` is tested against.
[[nodiscard]] MANTISSA_API GradientPass
gradient_pass_reference(at::TensorList gradients, const at::Tensor& scale = {},
                        std::vector<GradientStatistics>* statistics = nullptr);

}  // namespace mantissa::ops
