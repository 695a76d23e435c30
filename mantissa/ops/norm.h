#pragma once

#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"

namespace mantissa::ops {

/// LayerNorm (Ba et al., 2016) and RMSNorm (Zhang and Sennrich, 2019) over the last dimension:
///
///     layer_norm: (x - mean) / sqrt(variance + eps) * weight + bias
///     rms_norm:   x / sqrt(mean of x^2 + eps) * weight
///
/// `x` (..., D) and `weight`, `bias` (D), D > 0, each in FP32, BF16 or FP16 (FP64: as ATen
/// operations, as on other devices). Arithmetic and statistics are FP32; the result is rounded
/// once, to `dtype`, where nothing is given that of x, in an autocast region the policy's compute
/// format. So a product that reads it needs no cast, and no FP32 result is kept: backward keeps x
/// and two numbers a row. Gradients are FP32 sums, rounded once to the dtype of what they are of;
/// none of them depends on the number of threads. They cannot be differentiated once more.
///
/// The dispatcher's operations mantissa::layer_norm, rms_norm, add_layer_norm and add_rms_norm.
/// Throws InvalidArgument for other shapes and dtypes.
MANTISSA_API at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight,
                                   const std::optional<at::Tensor>& bias, double eps = 1e-5,
                                   std::optional<at::ScalarType> dtype = {});

MANTISSA_API at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps = 1e-6,
                                 std::optional<at::ScalarType> dtype = {});

/// x + residual, of the wider dtype of the two, and its norm: one pass. `dtype` as above, where
/// nothing is given that of the sum.
MANTISSA_API std::pair<at::Tensor, at::Tensor> add_layer_norm(
    const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
    const std::optional<at::Tensor>& bias, double eps = 1e-5,
    std::optional<at::ScalarType> dtype = {});

MANTISSA_API std::pair<at::Tensor, at::Tensor> add_rms_norm(
    const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight, double eps = 1e-6,
    std::optional<at::ScalarType> dtype = {});

}  // namespace mantissa::ops
