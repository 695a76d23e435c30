#pragma once

#include <cstdint>
#include <utility>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"

namespace mantissa::ops {

/// The rotary tables of `length` positions for heads of `head_width` channels (Su et al., RoFormer,
/// 2021): cos and sin of t * base^(-2i/head_width), each (length, head_width) with the frequencies
/// repeated in both halves. Angles are taken in double, since above position 256 BF16 and above
/// 2,048 FP16 no longer tell neighbouring positions apart; the table is rounded once, to `dtype`.
/// Tables are cached per thread; the latest few (length, width, base, dtype, device) stay. Making
/// them waits for the device, finding them does not.
MANTISSA_API std::pair<at::Tensor, at::Tensor> rotary_tables(int64_t length, int64_t head_width,
                                                             double base, at::ScalarType dtype,
                                                             at::Device device = at::kCPU);

/// Rotates the channel pairs (i, i + W/2) of `x` (..., T, W) by the tables of its dtype.
MANTISSA_API at::Tensor rotate(const at::Tensor& x, double base);

/// Self-attention of queries and keys that are rotated first: `qkv` (B, T, 3, H, W) holds queries,
/// keys and values of B sequences, T tokens and H heads; the result is (B, T, H, W). With `causal`
/// a token sees itself and those before it. Scores are scaled by 1 / sqrt(W).
///
/// On the CPU, for FP32, BF16 and FP16, backward keeps qkv, the result and a number a query:
/// rotated queries and keys, rounded once from FP32, are made again. Elsewhere it is rotate() and
/// LibTorch's scaled_dot_product_attention. In an autocast region qkv is cast as an argument of
/// `linear` is.
///
/// The dispatcher's operation mantissa::rotary_attention. Throws InvalidArgument for other shapes.
MANTISSA_API at::Tensor rotary_attention(const at::Tensor& qkv, double base, bool causal);

}  // namespace mantissa::ops
