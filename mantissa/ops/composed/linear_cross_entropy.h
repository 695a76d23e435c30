#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"
#include "mantissa/ops/linear_cross_entropy.h"

namespace mantissa::ops::composed {

/// linear_cross_entropy with the gradients that are `wanted` (of input, weight, bias; undefined
/// otherwise), as ATen operations on `chunk` rows at a time, on any device and without waiting for
/// it. All is FP32, or FP64 for FP64 input, but the factors of products; logits are rounded to
/// BF16 where no product of BF16 factors gives FP32. What is between the products is one kernel
/// where the device has some (device_kernels.h); it makes the loss NaN for a target that is no
/// class.
MANTISSA_API LinearCrossEntropy linear_cross_entropy(
    const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
    const at::Tensor& targets, const LinearCrossEntropyOptions& options,
    const std::array<bool, 3>& wanted, int64_t chunk);

}  // namespace mantissa::ops::composed
