#pragma once

#include <cstdint>

#include "mantissa/base/api.h"
#include "mantissa/numerics/format.h"
#include "mantissa/numerics/rounding.h"

namespace mantissa::numerics {

/// Bounds of rounding errors, derived and not measured. The source of the model and of gamma is
/// N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, SIAM 2002: sections
/// 2.2 and 2.8 (underflow) and chapter 3. None of them covers overflow.

/// The largest relative error of rounding a normal number: half of epsilon to nearest, epsilon
/// toward zero and stochastically.
MANTISSA_API double unit_roundoff(Format format, Rounding rounding = Rounding::nearest_even);

/// The largest absolute error of rounding a number below the smallest normal: half of the
/// smallest subnormal to nearest, else all of it.
MANTISSA_API double underflow_error(Format format, Rounding rounding = Rounding::nearest_even);

/// gamma_n = n u / (1 - n u): bounds |(1 + d_1)...(1 + d_n) - 1| for |d_i| <= u (Higham, lemma
/// 3.1). Throws InvalidArgument unless 0 <= n and n u < 1.
MANTISSA_API double gamma(int64_t n, double unit_roundoff);

/// A dot product as 16-bit matrix units and our CPU kernels compute it: the FP32 inputs are
/// rounded to `input`, products are summed in FP32 in any order, with or without fused
/// multiply-add, and the sum is rounded once to `output`, all to nearest. fp32 for either means no
/// rounding there: give it for inputs that already are 16-bit numbers.
struct DotProduct {
  int64_t length = 0;
  Format input = Format::fp32;
  Format output = Format::fp32;
  double sum_abs_products = 0.0;  // sum of |a_i b_i|
  double sum_abs_inputs = 0.0;    // sum of |a_i| + |b_i|; matters when inputs may underflow
};

/// A bound of |computed - exact| for it. With u, h the unit roundoff and underflow error of a
/// format, n, S and T the three numbers above:
///     inputs  e1 = (2 u + u^2) S + h (1 + u) T + n h^2              u, h of `input`
///     sum     e2 = gamma_n (S + e1) + n h (1 + gamma_n)             u, h of fp32
///     output  e3 = u (S + e1 + e2) + h                              u, h of `output`
///     bound      = e1 + e2 + e3
MANTISSA_API double dot_error_bound(const DotProduct& product);

}  // namespace mantissa::numerics
