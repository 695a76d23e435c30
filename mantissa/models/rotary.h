#pragma once

#include <cstdint>
#include <utility>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"

namespace mantissa::models {

/// The rotary tables of `length` positions for heads of `head_width` channels (Su et al., RoFormer,
/// 2021): cos and sin of t * base^(-2i/head_width), each (length, head_width) with the frequencies
/// repeated in both halves. Angles are taken in double, since above position 256 BF16 and above
/// 2,048 FP16 no longer tell neighbouring positions apart; the table is rounded once, to `dtype`.
/// Tables are cached per thread; the latest few (length, width, base, dtype) stay.
MANTISSA_API std::pair<at::Tensor, at::Tensor> rotary_tables(int64_t length, int64_t head_width,
                                                             double base, at::ScalarType dtype);

/// Rotates the channel pairs (i, i + W/2) of `x` (..., T, W) by the tables of its dtype.
MANTISSA_API at::Tensor rotate(const at::Tensor& x, double base);

}  // namespace mantissa::models
