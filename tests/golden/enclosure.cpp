#include "enclosure.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "mantissa/numerics/error_bound.h"
#include "mantissa/numerics/rounding.h"

namespace mantissa::golden {
namespace {

using numerics::Format;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kFp32Roundoff = 0x1p-24;
constexpr double kFp64Roundoff = 0x1p-53;

// Of `roundings` in FP32, and as many in the FP64 of the enclosure.
double relative_error(int64_t roundings) {
  return numerics::gamma(roundings, kFp32Roundoff) + numerics::gamma(roundings, kFp64Roundoff);
}

Interval widened(const Interval& x, double error) { return {x.low - error, x.high + error}; }

Interval negated(const Interval& x) { return {-x.high, -x.low}; }

double magnitude(const Interval& x) { return std::max(std::fabs(x.low), std::fabs(x.high)); }

// What an FP32 number within `x` can be after rounding. The nearest FP32 number of an end is no
// farther inside than the last FP32 number of the interval, as that one is its own nearest.
Interval rounded(Format format, const Interval& x) {
  return {numerics::round_to(format, static_cast<float>(x.low)),
          numerics::round_to(format, static_cast<float>(x.high))};
}

Interval rounded_output(Format compute, const Interval& x) {
  return numerics::info(compute).storage_bits == 16 ? rounded(compute, x) : x;
}

Interval times(const Interval& a, const Interval& b) {
  const auto [low, high] =
      std::minmax({a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high});
  return {low, high};
}

// The largest power of two of which `value`, not zero, is a multiple.
double lowest_bit(double value) {
  int exponent = 0;
  const double fraction = std::frexp(std::fabs(value), &exponent);
  const auto digits = static_cast<uint64_t>(std::ldexp(fraction, 53));
  return std::ldexp(static_cast<double>(digits & (~digits + 1)), exponent - 53);
}

// A sum of products, before its rounding to the output.
class Sum {
 public:
  // The factors are exact in FP32, so the ends of the product are exact in FP64.
  void add(const Interval& a, const Interval& b) {
    const Interval product = times(a, b);
    const double size = magnitude(product);
    if (size == 0) {
      return;
    }
    ++count_;
    low_ += product.low;
    high_ += product.high;
    sum_abs_ += size;
    quantum_ = product.is_point() ? std::min(quantum_, lowest_bit(product.low)) : 0.0;
  }

  Interval result() const {
    const bool exact = quantum_ >= 0x1p-149 && sum_abs_ <= 0x1p24 * quantum_;
    if (exact) {
      return {low_, high_};
    }
    const double fp32 = numerics::dot_error_bound({.length = count_, .sum_abs_products = sum_abs_});
    const double fp64 = numerics::gamma(count_, kFp64Roundoff) * sum_abs_;
    return widened({low_, high_}, fp32 + fp64);
  }

 private:
  int64_t count_ = 0;
  double low_ = 0;
  double high_ = 0;
  double sum_abs_ = 0;
  double quantum_ = kInfinity;
};

IntervalMatrix intervals(int64_t rows, int64_t columns) {
  return {rows, columns, std::vector<Interval>(static_cast<size_t>(rows * columns))};
}

IntervalMatrix points(const Matrix& matrix) {
  IntervalMatrix result = intervals(matrix.rows, matrix.columns);
  std::transform(matrix.values.begin(), matrix.values.end(), result.values.begin(),
                 [](float value) {
                   return Interval{value, value};
                 });
  return result;
}

IntervalMatrix transposed(const IntervalMatrix& matrix) {
  IntervalMatrix result = intervals(matrix.columns, matrix.rows);
  for (int64_t i = 0; i < matrix.rows; ++i) {
    for (int64_t j = 0; j < matrix.columns; ++j) {
      result.at(j, i) = matrix.at(i, j);
    }
  }
  return result;
}

IntervalMatrix factors(Format compute, const IntervalMatrix& matrix) {
  IntervalMatrix result = matrix;
  for (Interval& value : result.values) {
    value = rounded(compute, value);
  }
  return result;
}

// a b
IntervalMatrix product(Format compute, const IntervalMatrix& a, const IntervalMatrix& b) {
  const IntervalMatrix left = factors(compute, a);
  const IntervalMatrix right = factors(compute, b);
  IntervalMatrix result = intervals(a.rows, b.columns);
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t j = 0; j < b.columns; ++j) {
      Sum sum;
      for (int64_t k = 0; k < a.columns; ++k) {
        sum.add(left.at(i, k), right.at(k, j));
      }
      result.at(i, j) = rounded_output(compute, sum.result());
    }
  }
  return result;
}

IntervalMatrix relu(const IntervalMatrix& x) {
  IntervalMatrix result = x;
  for (Interval& value : result.values) {
    value = {std::max(value.low, 0.0), std::max(value.high, 0.0)};
  }
  return result;
}

// With R the largest |x_c - x_j|, u the roundoff of FP32, and "one ulp" at most 2 u of a result:
//   a_c = x_c - max            is off by u R
//   s = sum of exp(a_c)        relatively by rho = e^(u R) (1 + 2 u) (1 + gamma_3) - 1
//   log s, within [0, log 4]   by rho / (1 - rho) and one ulp
//   a_j - log s                by the errors of both, and one rounding of their difference
double log_softmax_error(double range) {
  const double u = kFp32Roundoff;
  const double log_s = std::log(static_cast<double>(kBases));
  const double rho = (std::exp(u * range) * (1 + 2 * u) * (1 + numerics::gamma(kBases - 1, u))) - 1;
  const double before = (u * range) + (rho / (1 - rho)) + (2 * u * log_s);
  // In FP64 `log_p` makes kBases differences, exponentials and sums, and a logarithm.
  const double fp64 = numerics::gamma(4 * kBases, 2 * kFp64Roundoff) * (1 + range + log_s);
  return before + (u * (range + log_s + before)) + fp64;
}

// -log of the sum of exp(others - own): own.low with others.high is the lowest.
double log_p(const IntervalMatrix& x, int64_t row, int64_t column, double Interval::*own,
             double Interval::*others) {
  double sum = 1;
  for (int64_t j = 0; j < x.columns; ++j) {
    sum += j == column ? 0 : std::exp(x.at(row, j).*others - x.at(row, column).*own);
  }
  return -std::log(sum);
}

IntervalMatrix log_softmax(const IntervalMatrix& x) {
  IntervalMatrix result = x;
  for (int64_t i = 0; i < x.rows; ++i) {
    double low = kInfinity;
    double high = -kInfinity;
    for (int64_t j = 0; j < x.columns; ++j) {
      low = std::min(low, x.at(i, j).low);
      high = std::max(high, x.at(i, j).high);
    }
    const double error = log_softmax_error(high - low);
    for (int64_t j = 0; j < x.columns; ++j) {
      result.at(i, j) = widened({log_p(x, i, j, &Interval::low, &Interval::high),
                                 log_p(x, i, j, &Interval::high, &Interval::low)},
                                error);
    }
  }
  return result;
}

// kBatch - 1 additions and a division.
Interval mean_loss(const IntervalMatrix& log_p, const std::vector<int64_t>& targets) {
  Interval sum;
  double sum_abs = 0;
  for (int64_t i = 0; i < log_p.rows; ++i) {
    const Interval term = negated(log_p.at(i, targets[i]));
    sum = {sum.low + term.low, sum.high + term.high};
    sum_abs += magnitude(term);
  }
  const Interval wide = widened(sum, relative_error(log_p.rows) * sum_abs);
  const auto count = static_cast<double>(log_p.rows);
  return {wide.low / count, wide.high / count};
}

// direct + p seed: exp is within one ulp, two roundoffs, and the product and the sum round once
// each; seed is a power of two, so that the product is exact, which a fused form would not change.
IntervalMatrix logit_gradient(Format compute, const IntervalMatrix& log_p,
                              const std::vector<int64_t>& targets, float scale) {
  const double seed = scale / static_cast<double>(log_p.rows);
  const double exp_error = relative_error(2);
  IntervalMatrix result = log_p;
  for (int64_t i = 0; i < log_p.rows; ++i) {
    for (int64_t j = 0; j < log_p.columns; ++j) {
      const double direct = j == targets[i] ? -seed : 0.0;
      const Interval term = {std::exp(log_p.at(i, j).low) * (1 - exp_error) * seed,
                             std::exp(log_p.at(i, j).high) * (1 + exp_error) * seed};
      const Interval sum = {direct + term.low, direct + term.high};
      const double rounding = direct == 0 ? 0.0 : relative_error(1) * magnitude(sum);
      result.at(i, j) = rounded_output(compute, widened(sum, rounding));
    }
  }
  return result;
}

// What passes back through a ReLU whose results are `y`: all, nothing, or either.
IntervalMatrix masked(const IntervalMatrix& dy, const IntervalMatrix& y) {
  IntervalMatrix result = dy;
  for (size_t i = 0; i < result.values.size(); ++i) {
    Interval& value = result.values[i];
    if (y.values[i].high <= 0) {
      value = {};
    } else if (y.values[i].low <= 0) {
      value = {std::min(value.low, 0.0), std::max(value.high, 0.0)};
    }
  }
  return result;
}

Overflow overflow_of(const IntervalMatrix& matrix) {
  Overflow result = Overflow::none;
  for (const Interval& value : matrix.values) {
    if (value.low == kInfinity || value.high == -kInfinity) {
      return Overflow::certain;
    }
    if (!std::isfinite(value.low) || !std::isfinite(value.high)) {
      result = Overflow::possible;
    }
  }
  return result;
}

}  // namespace

Enclosure enclose(Format compute, const Weights& weights, const Batch& batch, float scale) {
  const IntervalMatrix x = points(batch.inputs);
  const IntervalMatrix output = points(weights.output);
  const IntervalMatrix hidden = relu(product(compute, x, transposed(points(weights.hidden))));
  const IntervalMatrix log_p = log_softmax(product(compute, hidden, transposed(output)));
  Enclosure result;
  result.loss = mean_loss(log_p, batch.targets);

  // An infinite gradient of logits or hidden units makes that of a weight infinite or NaN: it is
  // multiplied by something and added. So the first stage that overflows decides.
  const IntervalMatrix d_logits = logit_gradient(compute, log_p, batch.targets, scale);
  result.overflow = overflow_of(d_logits);
  if (result.overflow != Overflow::none) {
    return result;
  }
  const IntervalMatrix d_hidden = masked(product(compute, d_logits, output), hidden);
  result.output_gradient = product(compute, transposed(d_logits), hidden);
  const Overflow of_hidden = overflow_of(d_hidden);
  if (of_hidden == Overflow::none) {
    result.hidden_gradient = product(compute, transposed(d_hidden), x);
  }
  for (const Overflow overflow :
       {of_hidden, overflow_of(result.output_gradient), overflow_of(result.hidden_gradient)}) {
    if (overflow == Overflow::certain || result.overflow == Overflow::none) {
      result.overflow = overflow;
    }
  }
  return result;
}

}  // namespace mantissa::golden
