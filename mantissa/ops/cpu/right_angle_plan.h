#pragma once

#include <cstdint>
#include <vector>

#include "mantissa/base/api.h"

namespace mantissa::ops::cpu {

/// Columns of the array in which a row of numbers is transformed: a whole number of vectors of any
/// instruction set, so that sizes and results do not depend on it.
inline constexpr int64_t kColumns = 16;

/// Size and factors of a right-angle transform: the values of a real polynomial in x at the roots
/// of x^size = i. Products of such values are those of polynomials modulo x^size - i, whose
/// coefficients have the first `size` of the linear convolution as real parts and the rest as
/// imaginary ones (Crandall and Fagin, 1994): no zeros are appended and no two rows share a
/// transform, which costs half a complex one of twice the size.
///
/// Number t is in row t / kColumns of the array and column t % kColumns; `rows` = first_radix 4^n,
/// n >= 2. With y = x^kColumns, each column is a polynomial modulo y^rows - i. A step splits
/// y^m - c^m, in place, into its factors y^(m/radix) - (c w)^(m/radix), w^radix = 1: one factor
/// for a whole block, and the blocks are independent from there on. After the last step a row holds
/// a polynomial in x modulo x^kColumns - y, which two more steps of radix 4 finish.
struct RightAnglePlan {
  /// For rows of `length` numbers at least; of those sizes the one that costs least.
  MANTISSA_API explicit RightAnglePlan(int64_t length);

  int64_t size() const { return rows * kColumns; }

  int64_t rows;
  int64_t first_radix;              // 1 to 10, 12 or 14
  std::vector<float> first_powers;  // [result q][operand p]: real and imaginary part of c_q^p
  struct Step {
    std::vector<float> factors;  // of each block z, z^2, z^3, each real and imaginary part
  };
  std::vector<Step> steps;  // of radix 4
  // x and x^4, x^kColumns = y: [row / kColumns][which][part][row % kColumns].
  std::vector<float> values;
};

}  // namespace mantissa::ops::cpu
