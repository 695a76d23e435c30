#include "mantissa/numerics/rounding.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/random.h"
#include "mantissa/numerics/bit_pattern.h"
#include "mantissa/numerics/boundary_values.h"

namespace mantissa::numerics {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// Rounding by its definition: the neighbours are looked up among all numbers of the format and
// distances are compared in double, where they are exact.
class Definition {
 public:
  explicit Definition(Format format) {
    for (uint32_t m = 0; m <= max_magnitude(format); ++m) {
      numbers_.push_back(decode(format, m << pad_bits(format)));
    }
    // What would follow the largest number if the exponent had no limit.
    numbers_.push_back(2 * numbers_.back() - numbers_[numbers_.size() - 2]);
  }

  // The magnitude for a finite `value` >= 0.
  uint32_t magnitude_of(double value, Rounding rounding, uint32_t random_bits) const {
    const auto overflow = static_cast<uint32_t>(numbers_.size() - 1);
    const auto above = std::upper_bound(numbers_.begin(), numbers_.end(), value);
    if (above == numbers_.end()) {
      return rounding == Rounding::toward_zero ? overflow - 1 : overflow;
    }
    const auto low = static_cast<uint32_t>(above - numbers_.begin() - 1);
    const double distance = (value - numbers_[low]) / (numbers_[low + 1] - numbers_[low]);
    switch (rounding) {
      case Rounding::nearest_even:
        return distance > 0.5 || (distance == 0.5 && low % 2 == 1) ? low + 1 : low;
      case Rounding::toward_zero:
        return low;
      case Rounding::stochastic:
        return std::floor(distance * 0x1p32) + random_bits >= 0x1p32 ? low + 1 : low;
    }
    return 0;
  }

 private:
  std::vector<double> numbers_;
};

TEST(Rounding, NamesParseBackAndUnknownOnesAreErrors) {
  for (Rounding rounding : {Rounding::nearest_even, Rounding::toward_zero, Rounding::stochastic}) {
    EXPECT_EQ(parse_rounding(to_string(rounding)), rounding);
  }
  for (Overflow overflow : {Overflow::ieee, Overflow::saturate}) {
    EXPECT_EQ(parse_overflow(to_string(overflow)), overflow);
  }
  try {
    parse_rounding("nearest_evn");
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "rounding: unknown \"nearest_evn\"; did you mean \"nearest_even\"?");
  }
  try {
    parse_overflow("saturated");
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "overflow: unknown \"saturated\"; did you mean \"saturate\"?");
  }
}

TEST(Rounding, EveryNumberOfAFormatSurvivesARoundTrip) {
  for (Format format : kFormats) {
    SCOPED_TRACE(to_string(format));
    // All patterns, but of fp32 one in 65,537.
    const uint64_t end = uint64_t{1} << info(format).storage_bits;
    const uint64_t step = format == Format::fp32 ? 65537 : uint64_t{1} << pad_bits(format);
    for (uint64_t i = 0; i < end; i += step) {
      const auto pattern = static_cast<uint32_t>(i);
      const float value = decode(format, pattern);
      const bool is_nan = classify(format, pattern) == NumberClass::nan;
      ASSERT_EQ(std::isnan(value), is_nan) << pattern;
      for (Rounding rounding :
           {Rounding::nearest_even, Rounding::toward_zero, Rounding::stochastic}) {
        ASSERT_EQ(encode(format, value, rounding, 0xFFFFFFFF),
                  is_nan ? nan_pattern(format) : pattern)
            << pattern << to_string(rounding);
      }
    }
  }
}

TEST(Rounding, NumbersOfAFormatIncreaseWithTheirPatterns) {
  for (Format format : kFormats) {
    const uint32_t step = format == Format::fp32 ? 65537 : 1;
    double last = -1.0;
    for (uint32_t m = 0; m <= max_magnitude(format); m += step) {
      const double value = decode(format, m << pad_bits(format));
      ASSERT_GT(value, last) << to_string(format) << m;
      last = value;
    }
    EXPECT_EQ(decode(format, max_magnitude(format) << pad_bits(format)), info(format).max);
    EXPECT_EQ(decode(format, 1U << pad_bits(format)), info(format).smallest_subnormal);
  }
}

TEST(Rounding, IsWhatItsDefinitionSaysNearEveryBoundary) {
  constexpr uint64_t kSeed = 3;
  SCOPED_TRACE(concat("seed ", kSeed));
  for (Format format :
       {Format::tf32, Format::bf16, Format::fp16, Format::fp8_e4m3, Format::fp8_e5m2}) {
    SCOPED_TRACE(to_string(format));
    const Definition definition(format);
    Random random(kSeed, 0);
    for (float value : boundary_values(format)) {
      if (!std::isfinite(value)) {
        continue;
      }
      const uint32_t sign = std::signbit(value) ? sign_mask(format) : 0;
      for (Rounding rounding :
           {Rounding::nearest_even, Rounding::toward_zero, Rounding::stochastic}) {
        const uint32_t bits = random.next_u32();
        const uint32_t expected = definition.magnitude_of(std::abs(value), rounding, bits);
        ASSERT_EQ(encode(format, value, rounding, bits), expected << pad_bits(format) | sign)
            << std::hexfloat << value << ' ' << to_string(rounding) << ' ' << bits;
      }
    }
  }
}

TEST(Rounding, KnownValues) {
  EXPECT_EQ(encode(Format::bf16, 0.1F), 0x3DCDU);
  EXPECT_EQ(encode(Format::bf16, 0.1F, Rounding::toward_zero), 0x3DCCU);
  EXPECT_EQ(encode(Format::fp16, 0.1F), 0x2E66U);
  EXPECT_EQ(encode(Format::tf32, 0.1F), 0x3DCCC000U);
  EXPECT_EQ(encode(Format::fp8_e4m3, 0.1F), 0x1DU);
  EXPECT_EQ(encode(Format::fp8_e5m2, 0.1F), 0x2EU);
  EXPECT_EQ(encode(Format::fp32, 0.1F), 0x3DCCCCCDU);
  EXPECT_EQ(round_to(Format::bf16, 3.14159265F), 3.140625F);
  EXPECT_EQ(encode(Format::fp16, -0.0F), 0x8000U);
}

TEST(Rounding, OverflowGoesWhereTheStandardsSay) {
  // 65520 is the middle between 65504, the largest, and 65536.
  EXPECT_EQ(encode(Format::fp16, 65519.996F), 0x7BFFU);
  EXPECT_EQ(encode(Format::fp16, 65520.0F), 0x7C00U);
  EXPECT_EQ(encode(Format::fp16, -1e9F, Rounding::toward_zero), 0xFBFFU);
  EXPECT_EQ(encode(Format::fp16, -kInf, Rounding::toward_zero), 0xFC00U);
  EXPECT_EQ(encode(Format::fp16, kInf, Rounding::nearest_even, 0, Overflow::saturate), 0x7BFFU);
  EXPECT_EQ(encode(Format::fp16, -1e9F, Rounding::nearest_even, 0, Overflow::saturate), 0xFBFFU);
  // 464 is the middle between 448, the largest and even, and 480.
  EXPECT_EQ(encode(Format::fp8_e4m3, 464.0F), 0x7EU);
  EXPECT_EQ(encode(Format::fp8_e4m3, 464.00003F), 0x7FU);
  EXPECT_EQ(encode(Format::fp8_e4m3, -500.0F), 0xFFU);
  EXPECT_EQ(encode(Format::fp8_e4m3, kInf), 0x7FU);
  EXPECT_EQ(encode(Format::fp8_e4m3, kInf, Rounding::toward_zero), 0x7FU);
  EXPECT_EQ(encode(Format::fp8_e4m3, 1e9F, Rounding::toward_zero), 0x7EU);
  EXPECT_EQ(encode(Format::fp8_e4m3, -500.0F, Rounding::nearest_even, 0, Overflow::saturate),
            0xFEU);
  EXPECT_EQ(encode(Format::fp8_e5m2, 61440.0F), 0x7CU);
  EXPECT_EQ(encode(Format::bf16, 0x1.fep127F), 0x7F7FU);
  EXPECT_EQ(encode(Format::bf16, 0x1.ffp127F), 0x7F80U);
  EXPECT_EQ(encode(Format::fp32, kInf, Rounding::nearest_even, 0, Overflow::saturate), 0x7F7FFFFFU);
}

TEST(Rounding, EveryNanBecomesTheOneNanOfTheFormat) {
  for (Format format : kFormats) {
    for (uint32_t bits : {0x7FC00000U, 0xFFC00000U, 0x7F800001U, 0xFFFFFFFFU}) {
      for (Overflow overflow : {Overflow::ieee, Overflow::saturate}) {
        EXPECT_EQ(
            encode(format, std::bit_cast<float>(bits), Rounding::stochastic, 0xFFFFFFFF, overflow),
            nan_pattern(format));
      }
    }
  }
}

TEST(Rounding, DecodingKeepsSignAndFractionOfANan) {
  const auto bits = [](Format format, uint32_t pattern) {
    return std::bit_cast<uint32_t>(decode(format, pattern));
  };
  EXPECT_EQ(bits(Format::bf16, 0xFF81), 0xFF810000U);
  EXPECT_EQ(bits(Format::tf32, 0x7F802000), 0x7F802000U);
  EXPECT_EQ(bits(Format::fp16, 0xFC01), 0xFFC02000U);
  EXPECT_EQ(bits(Format::fp8_e5m2, 0x7D), 0x7FE00000U);
  EXPECT_EQ(bits(Format::fp8_e4m3, 0xFF), 0xFFF00000U);
}

// Of the 2^32 equally likely random words, those with one value of the high 16 bits do the same
// to bf16, so 2^16 words stand for all: exactly k of them round 1 + k 2^-23 up.
TEST(Rounding, StochasticRoundsUpInExactProportion) {
  for (uint32_t k : {0U, 1U, 77U, 32768U, 65535U}) {
    const auto value = std::bit_cast<float>(0x3F800000U + k);
    uint32_t ups = 0;
    for (uint32_t high = 0; high < 65536; ++high) {
      const uint32_t low = high * 40503U & 0xFFFF;  // must not matter
      ups += encode(Format::bf16, value, Rounding::stochastic, high << 16 | low) - 0x3F80U;
    }
    EXPECT_EQ(ups, k);
  }
}

// 2^-45 is 2^-21 of the smallest fp16 subnormal: 2^11 of the 2^32 words round it up.
TEST(Rounding, StochasticKeepsItsProportionFarBelowTheSmallestSubnormal) {
  constexpr uint32_t kUps = 1U << 11;
  EXPECT_EQ(encode(Format::fp16, 0x1p-45F, Rounding::stochastic, 0U - kUps), 1U);
  EXPECT_EQ(encode(Format::fp16, 0x1p-45F, Rounding::stochastic, 0U - kUps - 1), 0U);
  EXPECT_EQ(encode(Format::fp16, -0x1p-45F, Rounding::stochastic, 0U - kUps), 0x8001U);
  EXPECT_EQ(encode(Format::fp16, 0x1p-57F, Rounding::stochastic, 0xFFFFFFFF), 0U);
}

}  // namespace
}  // namespace mantissa::numerics
