#include "mantissa/numerics/exponent_histogram.h"

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/base/random.h"
#include "mantissa/numerics/bit_pattern.h"
#include "mantissa/numerics/boundary_values.h"
#include "mantissa/numerics/convert.h"

namespace mantissa::numerics {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class ExponentHistogramOnEveryTarget : public testing::TestWithParam<int64_t> {
 protected:
  ExponentHistogramOnEveryTarget() { use(GetParam()); }
  ~ExponentHistogramOnEveryTarget() override { use(0); }

  static void use(int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

INSTANTIATE_TEST_SUITE_P(Targets, ExponentHistogramOnEveryTarget,
                         testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const testing::TestParamInfo<int64_t>& target) {
                           return hwy::TargetName(target.param);
                         });

std::vector<float> values_of(Format format, const std::vector<uint16_t>& patterns) {
  std::vector<float> values(patterns.size());
  decode(format, patterns, values);
  return values;
}

TEST_P(ExponentHistogramOnEveryTarget, EqualsTheReferenceAtEveryLimitOfEveryFormat) {
  for (const Format format : kFormats) {
    const std::vector<float> values = boundary_values(format);
    EXPECT_EQ(exponent_histogram(values), exponent_histogram_reference(values))
        << to_string(format);
  }
}

TEST_P(ExponentHistogramOnEveryTarget, EqualsTheReferenceOnAll16BitPatterns) {
  std::vector<uint16_t> patterns(65536);
  for (size_t i = 0; i < patterns.size(); ++i) {
    patterns[i] = static_cast<uint16_t>(i);
  }
  for (const Format format : {Format::bf16, Format::fp16}) {
    EXPECT_EQ(exponent_histogram(format, patterns),
              exponent_histogram_reference(values_of(format, patterns)))
        << to_string(format);
  }
}

// Lengths around those of vectors, starts that are not aligned, any bits.
TEST_P(ExponentHistogramOnEveryTarget, EqualsTheReferenceOnEveryLengthAndStart) {
  Random random(7, 0);
  std::vector<float> values(200);
  std::vector<uint16_t> patterns(200);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = std::bit_cast<float>(random.next_u32());
    patterns[i] = static_cast<uint16_t>(random.next_u32());
  }
  const std::vector<float> halves = values_of(Format::fp16, patterns);
  for (size_t start = 0; start < 5; ++start) {
    for (size_t size = 0; size < 70; ++size) {
      const auto part = std::span<const float>(values).subspan(start, size);
      ASSERT_EQ(exponent_histogram(part), exponent_histogram_reference(part))
          << start << " " << size;
      ASSERT_EQ(exponent_histogram(Format::fp16,
                                   std::span<const uint16_t>(patterns).subspan(start, size)),
                exponent_histogram_reference(std::span<const float>(halves).subspan(start, size)))
          << start << " " << size;
    }
  }
}

TEST(ExponentHistogram, SaysWhatIsThere) {
  const std::vector<float> values = {0.0F, -0.0F, 1.0F,  -1.5F, 3.0F,
                                     kNan, kInf,  -kInf, -kInf, 0x1p-140F};
  const ExponentHistogram histogram = exponent_histogram(values);
  EXPECT_EQ(histogram.count, 10);
  EXPECT_EQ(histogram.zeros, 2);
  EXPECT_EQ(histogram.nan, 1);
  EXPECT_EQ(histogram.positive_infinity, 1);
  EXPECT_EQ(histogram.negative_infinity, 2);
  EXPECT_EQ(histogram.num_nonfinite(), 4);
  EXPECT_EQ(histogram.bins[127], 2);
  EXPECT_EQ(histogram.bins[128], 1);
  EXPECT_EQ(histogram.bins[0], 1) << "a subnormal of FP32";
  EXPECT_EQ(histogram.largest, 3.0F);
  EXPECT_EQ(histogram.smallest, 0x1p-140F);
}

TEST(ExponentHistogram, AnFp16SubnormalHasItsTrueExponent) {
  const std::vector<uint16_t> patterns = {1};  // 2^-24
  const ExponentHistogram histogram = exponent_histogram(Format::fp16, patterns);
  EXPECT_EQ(histogram.bins[127 - 24], 1);
  EXPECT_EQ(histogram.in(Format::fp16).subnormal, 1);
  EXPECT_EQ(histogram.in(Format::bf16).subnormal, 0);
}

// IEEE 754-2019 and OCP 8-bit floating point specification 1.0; ties go to even.
TEST(ExponentHistogram, CountsTheEdgesOfFormatsExactly) {
  const auto counts = [](Format format, float value) {
    return exponent_histogram(std::vector<float>{value}).in(format);
  };
  const NarrowCounts zero{1, 0, 0};
  const NarrowCounts subnormal{0, 1, 0};
  const NarrowCounts overflow{0, 0, 1};
  const NarrowCounts normal{0, 0, 0};
  EXPECT_EQ(counts(Format::fp16, 65519.996F), normal);
  EXPECT_EQ(counts(Format::fp16, -65520.0F), overflow);
  EXPECT_EQ(counts(Format::fp16, 0x1p-25F), zero);
  EXPECT_EQ(counts(Format::fp16, std::nextafter(0x1p-25F, 1.0F)), subnormal);
  EXPECT_EQ(counts(Format::fp16, 0x1p-14F), normal);
  EXPECT_EQ(counts(Format::fp16, 0x1.fffp-15F), normal) << "rounds up to it";
  EXPECT_EQ(counts(Format::fp8_e4m3, 464.0F), normal) << "a tie, to 448";
  EXPECT_EQ(counts(Format::fp8_e4m3, std::nextafter(464.0F, kInf)), overflow);
  EXPECT_EQ(counts(Format::fp8_e4m3, 0x1p-10F), zero);
  EXPECT_EQ(counts(Format::fp8_e5m2, 61440.0F), overflow) << "a tie, to infinity";
  EXPECT_EQ(counts(Format::fp8_e5m2, std::nextafter(61440.0F, 0.0F)), normal);
  EXPECT_EQ(counts(Format::bf16, 0x1.ffp127F), overflow);
  EXPECT_EQ(counts(Format::bf16, 0x1p-134F), zero);
  EXPECT_EQ(counts(Format::bf16, 0x1p-127F), subnormal);
}

TEST(ExponentHistogram, MergedPartsAreTheWhole) {
  const std::vector<float> values = boundary_values(Format::fp16);
  const std::span<const float> whole(values);
  ExponentHistogram merged;
  merged.merge(exponent_histogram(whole.first(1000)));
  merged.merge(ExponentHistogram());
  merged.merge(exponent_histogram(whole.subspan(1000)));
  EXPECT_EQ(merged, exponent_histogram(whole));
}

TEST(ExponentHistogram, HeadroomIsBitsToTheLargestNumber) {
  const ExponentHistogram histogram = exponent_histogram(std::vector<float>{-16376.0F, 1.0F});
  EXPECT_EQ(headroom_bits(histogram, Format::fp16), 2.0);  // 65504 / 16376
  EXPECT_LT(headroom_bits(histogram, Format::fp8_e4m3), 0.0);
  EXPECT_EQ(headroom_bits(exponent_histogram(std::vector<float>{0.0F, kInf}), Format::fp16), kInf);
}

TEST(ExponentHistogram, NearOverflowIsFromAPowerOfTwoOn) {
  const ExponentHistogram histogram =
      exponent_histogram(std::vector<float>{8191.0F, 8192.0F, -70000.0F, kInf});
  EXPECT_EQ(num_near_overflow(histogram, Format::fp16, 3), 2);
  EXPECT_EQ(num_near_overflow(histogram, Format::fp16, 1), 1);
  EXPECT_EQ(num_near_overflow(histogram, Format::fp8_e4m3, 1), 3) << "from 256 on";
  EXPECT_EQ(
      message_of<InvalidArgument>([&] { (void)num_near_overflow(histogram, Format::fp16, 0); }),
      "num_near_overflow: bits is 0; use 1 or more");
}

TEST(ExponentHistogram, RefusesWhatItDoesNotCount) {
  EXPECT_EQ(message_of<InvalidArgument>([] { (void)ExponentHistogram().in(Format::tf32); }),
            "exponent_histogram: format tf32 is not counted; ask for bf16, fp16, fp8_e4m3 or "
            "fp8_e5m2");
  EXPECT_EQ(message_of<InvalidArgument>(
                [] { (void)exponent_histogram(Format::fp8_e5m2, std::vector<uint16_t>{1}); }),
            "exponent_histogram: format fp8_e5m2 is not stored in 16 bits; use bf16 or fp16");
}

}  // namespace
}  // namespace mantissa::numerics
