#include "mantissa/optim/clip.h"

#include <cmath>
#include <limits>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"

namespace mantissa::optim {
namespace {

float factor(double norm, double max_norm) {
  return clip_factor(at::full({}, norm, at::kFloat), max_norm).item<float>();
}

TEST(ClipFactor, LeavesSmallGradientsAlone) {
  EXPECT_EQ(factor(0, 1), 1);
  EXPECT_EQ(factor(0.5, 1), 1);
}

TEST(ClipFactor, BringsLargeOnesToTheLargestNorm) {
  // 1e-6 is added to the norm; three FP32 roundings.
  EXPECT_NEAR(factor(4, 1) * 4, 1, 1e-6 / 4 + 3 * 0x1p-24);
  EXPECT_NEAR(factor(std::numeric_limits<float>::max(), 2) *
                  static_cast<double>(std::numeric_limits<float>::max()),
              2, 2 * 0x1p-20)
      << "the factor is subnormal there, with 22 bits left";
}

TEST(ClipFactor, IsA0dFp32Tensor) {
  const at::Tensor result = clip_factor(at::full({}, 3, at::kFloat), 1);
  EXPECT_EQ(result.dim(), 0);
  EXPECT_EQ(result.scalar_type(), at::kFloat);
}

TEST(ClipFactor, RefusesALimitThatIsNone) {
  for (double max_norm : {0.0, -1.0, HUGE_VAL, std::nan("")}) {
    EXPECT_THROW((void)factor(1, max_norm), InvalidArgument) << max_norm;
  }
  try {
    (void)factor(1, 0);
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "clip_factor: max_norm is 0; it must be finite and positive, or clipping be left "
                 "out");
  }
  try {
    (void)clip_factor(at::zeros({2}), 1);
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "clip_factor: norm is Float of shape [2]; pass the 0-d Float norm of the unscaled "
                 "gradients");
  }
}

}  // namespace
}  // namespace mantissa::optim
