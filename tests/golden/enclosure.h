#pragma once

#include <cstdint>
#include <vector>

#include "mantissa/numerics/format.h"
#include "reference_model.h"

/// Between which numbers the loss and the gradients of a step of the reference model lie, however
/// its FP32 sums are ordered, with or without fused multiply-add, and with any exp and log that are
/// within one unit in the last place. Derived, without a measured factor:
///
/// - Intervals instead of numbers. They start as points: inputs and FP32 weights are given.
/// - A sum of products is what interval arithmetic says, widened by e2 of numerics::DotProduct:
///   gamma_n S + n h (1 + gamma_n), with n the products that are not zero, S the sum of |a_i b_i|.
///   When all products are multiples of one q and S <= 2^24 q, every partial sum is an FP32 number:
///   then the sum is exact in any order and nothing is added.
/// - Rounding to nearest is monotone: it maps the ends. So a 16-bit result stays a point unless a
///   boundary of rounding lies in the interval; then it is two neighbours, that is one ulp wide,
///   and that width goes on through the next product like any other.
/// - ReLU, exp and log are monotone too. A log-probability rises with its own logit and falls with
///   the others, which gives its ends without treating equal logits as independent.
/// - The FP64 roundings of the enclosure itself are added by gamma_n with the roundoff of FP64.
///
/// Whatever lies outside has rounded where it must not, or not where it must, or less precisely.
namespace mantissa::golden {

struct Interval {
  double low = 0;
  double high = 0;

  bool contains(double value) const { return low <= value && value <= high; }  // never NaN
  bool is_point() const { return low == high; }
};

/// Row by row.
struct IntervalMatrix {
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<Interval> values;

  Interval& at(int64_t row, int64_t column) { return values[(row * columns) + column]; }
  const Interval& at(int64_t row, int64_t column) const { return values[(row * columns) + column]; }
};

enum class Overflow : uint8_t {
  none,      // every gradient is finite
  certain,   // at least one gradient is not; there are no intervals of gradients
  possible,  // it depends on the order of sums
};

struct Enclosure {
  Interval loss;
  Overflow overflow = Overflow::none;
  IntervalMatrix hidden_gradient;  // with Overflow::none only; times the loss scale
  IntervalMatrix output_gradient;
};

/// Of the step with these weights, batch and loss scale, a power of two.
Enclosure enclose(numerics::Format compute, const Weights& weights, const Batch& batch,
                  float scale);

}  // namespace mantissa::golden
