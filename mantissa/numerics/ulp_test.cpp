#include "mantissa/numerics/ulp.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/numerics/bit_pattern.h"
#include "mantissa/numerics/rounding.h"

namespace mantissa::numerics {
namespace {

TEST(Ulp, IsTheGapToTheNextNumberAwayFromZero) {
  for (Format format : kFormats) {
    const uint32_t step = format == Format::fp32 ? 65537 : 1;
    for (uint32_t m = 0; m < max_magnitude(format); m += step) {
      const double low = decode(format, m << pad_bits(format));
      const double gap = decode(format, (m + 1) << pad_bits(format)) - low;
      ASSERT_EQ(ulp(format, low), gap) << to_string(format) << ' ' << m;
      ASSERT_EQ(ulp(format, -low - gap / 2), gap) << to_string(format) << ' ' << m;
    }
  }
}

TEST(Ulp, BeyondTheLargestNumberIsThatOfTheLargest) {
  EXPECT_EQ(ulp(Format::fp16, 1e30), 32.0);
  EXPECT_EQ(ulp(Format::fp16, std::numeric_limits<double>::infinity()), 32.0);
  EXPECT_TRUE(std::isnan(ulp(Format::fp16, std::nan(""))));
}

TEST(Ulp, NeighboursFollowIeee754) {
  EXPECT_EQ(next_up(Format::bf16, 0x3F80), 0x3F81U);
  EXPECT_EQ(next_down(Format::bf16, 0xBF80), 0xBF81U);
  EXPECT_EQ(next_up(Format::bf16, 0x8000), 0x0001U);
  EXPECT_EQ(next_down(Format::bf16, 0x0000), 0x8001U);
  EXPECT_EQ(next_up(Format::bf16, 0x8001), 0x8000U);
  EXPECT_EQ(next_down(Format::bf16, 0x0001), 0x0000U);
  EXPECT_EQ(next_up(Format::bf16, 0x7F7F), 0x7F80U);
  EXPECT_EQ(next_up(Format::bf16, 0x7F80), 0x7F80U);
  EXPECT_EQ(next_down(Format::bf16, 0x7F80), 0x7F7FU);
  EXPECT_EQ(next_down(Format::bf16, 0x7FC1), 0x7FC1U);
  EXPECT_EQ(next_up(Format::fp8_e4m3, 0x7E), 0x7FU);
  EXPECT_EQ(next_up(Format::tf32, 0x3F800000), 0x3F802000U);
}

TEST(Ulp, UpAndDownAreInverseForAllFiniteNumbers) {
  for (Format format : {Format::bf16, Format::fp16, Format::fp8_e4m3, Format::fp8_e5m2}) {
    for (uint32_t pattern = 0; pattern < 1U << info(format).storage_bits; ++pattern) {
      const uint32_t m = magnitude(format, pattern);
      if (m > 0 && m < max_magnitude(format)) {
        ASSERT_EQ(next_down(format, next_up(format, pattern)), pattern);
        ASSERT_EQ(next_up(format, next_down(format, pattern)),
                  m == 1 ? m | (pattern - m) : pattern);
        ASSERT_GT(decode(format, next_up(format, pattern)), decode(format, pattern));
        ASSERT_EQ(ulps_between(format, pattern, next_up(format, pattern)), 1);
      }
    }
  }
}

TEST(Ulp, DistancesCountStepsAcrossZero) {
  EXPECT_EQ(ulps_between(Format::fp16, 0x8000, 0x0000), 0);
  EXPECT_EQ(ulps_between(Format::fp16, 0x8002, 0x0003), 5);
  EXPECT_EQ(ulps_between(Format::fp16, 0x0003, 0x8002), -5);
  EXPECT_EQ(ulps_between(Format::fp32, 0xFF7FFFFF, 0x7F7FFFFF), int64_t{2} * 0x7F7FFFFF);
  EXPECT_EQ(ulps_between(Format::tf32, 0x3F800000, 0x3F804000), 2);
}

TEST(Ulp, ADistanceToNanIsAnError) {
  try {
    ulps_between(Format::fp16, 0x0000, 0x7E01);
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "ulps_between: 0x7e01 is NaN in fp16; a distance needs two numbers");
  }
}

TEST(Ulp, ErrorsAreMeasuredAtTheReference) {
  EXPECT_EQ(error_in_ulps(Format::bf16, 1.0, 1.0 + 0x1p-8), 0.5);
  EXPECT_EQ(error_in_ulps(Format::bf16, 2.0, 2.0 - 0x1p-7), 1.0);
}

}  // namespace
}  // namespace mantissa::numerics
