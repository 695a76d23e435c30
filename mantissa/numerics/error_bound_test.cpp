#include "mantissa/numerics/error_bound.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/random.h"

namespace mantissa::numerics {
namespace {

TEST(ErrorBound, UnitRoundoffIsHalfOfEpsilonToNearest) {
  EXPECT_EQ(unit_roundoff(Format::fp32), 0x1p-24);
  EXPECT_EQ(unit_roundoff(Format::bf16), 0x1p-8);
  EXPECT_EQ(unit_roundoff(Format::fp16, Rounding::stochastic), 0x1p-10);
  EXPECT_EQ(underflow_error(Format::fp16), 0x1p-25);
  EXPECT_EQ(underflow_error(Format::fp16, Rounding::toward_zero), 0x1p-24);
}

TEST(ErrorBound, GammaIsDefinedWhileNuIsBelowOne) {
  EXPECT_EQ(gamma(0, 0x1p-24), 0.0);
  EXPECT_EQ(gamma(128, 0x1p-8), 1.0);
  EXPECT_THROW(gamma(256, 0x1p-8), InvalidArgument);
  try {
    gamma(-1, 0.5);
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "gamma: n = -1, u = 0.5; valid: 0 <= n and 0 <= n u < 1");
  }
}

TEST(ErrorBound, NegativeSumsOfAbsoluteValuesAreErrors) {
  try {
    dot_error_bound({.length = 1, .sum_abs_products = -2, .sum_abs_inputs = 1});
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "dot_error_bound: sums of absolute values -2 and 1; they cannot be negative");
  }
}

struct Measured {
  double error;
  double bound;
};

// The computation that the bound is about, against the same in double. The reference errs by at
// most n 2^-53 S, which is below 2^-20 of the bound since that is at least n 2^-24 S.
Measured measure(const std::vector<float>& a, const std::vector<float>& b, Format input,
                 Format output) {
  DotProduct product{.length = static_cast<int64_t>(a.size()), .input = input, .output = output};
  float sum = 0.0F;
  double exact_sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    sum += round_to(input, a[i]) * round_to(input, b[i]);
    const double term = double{a[i]} * double{b[i]};
    exact_sum += term;
    product.sum_abs_products += std::abs(term);
    product.sum_abs_inputs += std::abs(double{a[i]}) + std::abs(double{b[i]});
  }
  return {std::abs(round_to(output, sum) - exact_sum), dot_error_bound(product)};
}

TEST(ErrorBound, HoldsForRandomDotProductsDownToSubnormals) {
  constexpr uint64_t kSeed = 5;
  SCOPED_TRACE(concat("seed ", kSeed));
  Random random(kSeed, 0);
  for (Format input : kFormats) {
    for (Format output : {Format::fp32, input}) {
      // From ordinary numbers to products below the smallest subnormal of fp32.
      for (double size : {1.0, 1e-3, 1e-6, 1e-12, 1e-20, 1e-23}) {
        for (size_t n : {1U, 7U, 300U}) {
          std::vector<float> a(n);
          std::vector<float> b(n);
          for (size_t i = 0; i < n; ++i) {
            a[i] = static_cast<float>(size * random.normal());
            b[i] = static_cast<float>(size * random.normal());
          }
          const Measured measured = measure(a, b, input, output);
          EXPECT_LE(measured.error, measured.bound * (1 + 0x1p-20))
              << to_string(input) << ' ' << to_string(output) << ' ' << size << ' ' << n;
        }
      }
    }
  }
}

// Worst cases come close to it, so it is not merely large. Both factors are 1 + u + 2^-23, a
// little over a tie, so that each rounds up by nearly u.
TEST(ErrorBound, IsNearlyReached) {
  for (Format format : {Format::bf16, Format::fp16, Format::tf32}) {
    const auto over_tie = static_cast<float>(1 + unit_roundoff(format) + 0x1p-23);
    const Measured normal = measure({over_tie}, {over_tie}, format, Format::fp32);
    EXPECT_GT(normal.error, 0.95 * normal.bound) << to_string(format);
  }
  // Just under half of the smallest subnormal vanishes whole.
  const auto vanishing = static_cast<float>(underflow_error(Format::fp16) * (1 - 0x1p-20));
  const Measured underflow = measure({vanishing}, {1.0F}, Format::fp16, Format::fp32);
  EXPECT_GT(underflow.error, 0.95 * underflow_error(Format::fp16));
  EXPECT_LE(underflow.error, underflow.bound);
}

// 2^24 + 1 - 2^24 in fp32: the bound must allow for the lost 1.
TEST(ErrorBound, CoversCancellation) {
  const Measured measured =
      measure({0x1p24F, 1.0F, -0x1p24F}, {1.0F, 1.0F, 1.0F}, Format::fp32, Format::fp32);
  EXPECT_EQ(measured.error, 1.0);
  EXPECT_LE(measured.error, measured.bound);
}

}  // namespace
}  // namespace mantissa::numerics
