#include "mantissa/models/rotary.h"

#include <cmath>

#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"

namespace mantissa::models {
namespace {

TEST(Rotary, TablesAreTheFormula) {
  const auto [cosines, sines] = rotary_tables(5, 4, 100.0, at::kDouble);
  for (int64_t t = 0; t < 5; ++t) {
    for (int64_t c = 0; c < 4; ++c) {
      const double angle = static_cast<double>(t) * (c % 2 == 0 ? 1.0 : 0.1);
      // FP32 rounding of a value in [-1, 1] moves it by at most 2^-25; the angle's own error of a
      // few double ulps is far below.
      EXPECT_NEAR(cosines[t][c].item<double>(), std::cos(angle), 0x1p-24);
      EXPECT_NEAR(sines[t][c].item<double>(), std::sin(angle), 0x1p-24);
    }
  }
}

// Positions beyond 256 would collide if they had been BF16 numbers themselves.
TEST(Rotary, A16BitTableIsTheRoundedFp32Table) {
  const auto [wide, unused] = rotary_tables(2048, 8, 1e4, at::kFloat);
  for (at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const auto [narrow, unused2] = rotary_tables(2048, 8, 1e4, dtype);
    EXPECT_TRUE(at::equal(narrow, wide.to(dtype)));
  }
}

TEST(Rotary, ScoresDependOnTheDistanceOnly) {
  // The same vector at every position: q_i . k_j must be a function of i - j.
  const at::Tensor q = at::randn({1, 8}, at::kDouble).expand({6, 8}).contiguous();
  const at::Tensor k = at::randn({1, 8}, at::kDouble).expand({6, 8}).contiguous();
  const at::Tensor scores = rotate(q, 1e4).matmul(rotate(k, 1e4).t());
  for (int64_t i = 1; i < 6; ++i) {
    // Tables are FP32-rounded (2^-25 relative each), |q||k| is below 8 * 4^2 with near certainty.
    EXPECT_NEAR(scores[i][i - 1].item<double>(), scores[1][0].item<double>(), 128 * 0x1p-22);
  }
}

TEST(Rotary, RefusesAnOddHeadWidth) {
  try {
    rotary_tables(4, 3, 1e4, at::kFloat);
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "rotary: head width 3; it must be even and positive");
  }
}

}  // namespace
}  // namespace mantissa::models
