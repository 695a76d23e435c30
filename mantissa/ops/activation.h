#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"

namespace mantissa::ops {

/// at::linear(at::gelu(x, "tanh"), weight, bias) and at::linear(at::silu(gate) * up, weight, bias),
/// which keep `x`, or `gate` and `up`, for backward, and not the activations, as wide as these:
/// they are computed again.
///
/// x, gate, up (..., D), weight (O, D), bias (O), of one dtype. On the CPU, FP32, BF16 and FP16 are
/// widened, and each activation and each gradient is rounded once; other dtypes and devices go by
/// ATen operations. In an autocast region arguments are cast as those of `linear` are. Gradients
/// cannot be differentiated once more.
///
/// The dispatcher's operations mantissa::gelu_linear and mantissa::swiglu_linear.
MANTISSA_API at::Tensor gelu_linear(const at::Tensor& x, const at::Tensor& weight,
                                    const std::optional<at::Tensor>& bias = {});

MANTISSA_API at::Tensor swiglu_linear(const at::Tensor& gate, const at::Tensor& up,
                                      const at::Tensor& weight,
                                      const std::optional<at::Tensor>& bias = {});

}  // namespace mantissa::ops
