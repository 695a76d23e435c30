#include "mantissa/numerics/convert.h"

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include "mantissa/base/error.h"
#include "mantissa/base/random.h"
#include "mantissa/numerics/bit_pattern.h"
#include "mantissa/numerics/boundary_values.h"

namespace mantissa::numerics {
namespace {

constexpr uint64_t kSeed = 0x1234567887654321;
constexpr uint64_t kStream = 0xABCDEF0100000007;

void use_targets(int64_t targets) {
  hwy::SetSupportedTargetsForTest(targets);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

// Runs the test body with each instruction set that was compiled and that this processor has.
class ConvertOnEveryTarget : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { use_targets(GetParam()); }
  void TearDown() override { use_targets(0); }
};

INSTANTIATE_TEST_SUITE_P(Targets, ConvertOnEveryTarget,
                         testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const testing::TestParamInfo<int64_t>& target) {
                           return std::string(hwy::TargetName(target.param));
                         });

std::vector<ConvertOptions> all_options() {
  std::vector<ConvertOptions> all;
  for (Rounding rounding : {Rounding::nearest_even, Rounding::toward_zero, Rounding::stochastic}) {
    for (Overflow overflow : {Overflow::ieee, Overflow::saturate}) {
      all.push_back({.rounding = rounding, .overflow = overflow});
    }
  }
  for (ConvertOptions& options : all) {
    if (options.rounding == Rounding::stochastic) {
      options.seed = kSeed;
      options.stream = kStream;
      options.offset = (uint64_t{1} << 34) - 1234 + 3;  // carries into the high half of the block
    }
  }
  return all;
}

std::string name(Format format, const ConvertOptions& options) {
  return concat(to_string(format), ' ', to_string(options.rounding), ' ',
                to_string(options.overflow), " on ", simd_target());
}

// What the scalar reference gives.
std::vector<uint32_t> reference(Format format, std::span<const float> values,
                                const ConvertOptions& options) {
  Random random(options.seed, options.stream, options.offset);
  std::vector<uint32_t> patterns;
  patterns.reserve(values.size());
  for (float value : values) {
    const uint32_t bits = options.rounding == Rounding::stochastic ? random.next_u32() : 0;
    patterns.push_back(encode(format, value, options.rounding, bits, options.overflow));
  }
  return patterns;
}

template <typename Pattern>
std::vector<uint32_t> encoded(Format format, std::span<const float> values,
                              const ConvertOptions& options) {
  std::vector<Pattern> patterns(values.size());
  encode(format, values, std::span<Pattern>(patterns), options);
  return {patterns.begin(), patterns.end()};
}

std::vector<uint32_t> bits_of(std::span<const float> values) {
  std::vector<uint32_t> bits;
  bits.reserve(values.size());
  for (float value : values) {
    bits.push_back(std::bit_cast<uint32_t>(value));
  }
  return bits;
}

// gtest would print megabytes.
testing::AssertionResult same(const std::vector<uint32_t>& actual,
                              const std::vector<uint32_t>& expected) {
  if (actual.size() != expected.size()) {
    return testing::AssertionFailure() << actual.size() << " elements, not " << expected.size();
  }
  for (size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] != expected[i]) {
      return testing::AssertionFailure()
             << std::hex << "element 0x" << i << " is 0x" << actual[i] << ", not 0x" << expected[i];
    }
  }
  return testing::AssertionSuccess();
}

std::vector<float> values_to_convert(Format format) {
  std::vector<float> values = boundary_values(format);
  Random random(kSeed, 1);
  for (int i = 0; i < 20000; ++i) {
    values.push_back(std::bit_cast<float>(random.next_u32()));
  }
  return values;
}

TEST_P(ConvertOnEveryTarget, IsTheOneInUse) {
  EXPECT_EQ(simd_target(), hwy::TargetName(GetParam()));
}

TEST_P(ConvertOnEveryTarget, AgreesWithTheReferenceNearEveryBoundary) {
  for (Format format : kFormats) {
    const std::vector<float> values = values_to_convert(format);
    for (const ConvertOptions& options : all_options()) {
      SCOPED_TRACE(name(format, options));
      const std::vector<uint32_t> expected = reference(format, values, options);
      if (info(format).storage_bits == 16) {
        EXPECT_TRUE(same(encoded<uint16_t>(format, values, options), expected));
      } else if (info(format).storage_bits == 8) {
        EXPECT_TRUE(same(encoded<uint8_t>(format, values, options), expected));
      }
      std::vector<float> decoded;
      decoded.reserve(expected.size());
      for (uint32_t pattern : expected) {
        decoded.push_back(decode(format, pattern));
      }
      std::vector<float> rounded(values.size());
      round_to(format, values, rounded, options);
      EXPECT_TRUE(same(bits_of(rounded), bits_of(decoded)));
      rounded = values;
      round_to(format, rounded, rounded, options);
      EXPECT_TRUE(same(bits_of(rounded), bits_of(decoded))) << "in place";
    }
  }
}

template <typename Pattern>
void expect_decodes_all(Format format) {
  constexpr uint32_t kLast = std::numeric_limits<Pattern>::max();
  std::vector<Pattern> patterns(kLast + 1);
  std::vector<float> expected(kLast + 1);
  for (uint32_t pattern = 0; pattern <= kLast; ++pattern) {
    patterns[pattern] = static_cast<Pattern>(pattern);
    expected[pattern] = decode(format, pattern);
  }
  std::vector<float> values(patterns.size());
  decode(format, std::span<const Pattern>(patterns), values);
  EXPECT_TRUE(same(bits_of(values), bits_of(expected))) << name(format, {});
}

TEST_P(ConvertOnEveryTarget, DecodesEveryPatternAsTheReferenceDoes) {
  expect_decodes_all<uint16_t>(Format::bf16);
  expect_decodes_all<uint16_t>(Format::fp16);
  expect_decodes_all<uint8_t>(Format::fp8_e4m3);
  expect_decodes_all<uint8_t>(Format::fp8_e5m2);
}

// Lengths around the vector width and around the pieces that random words come in, from addresses
// that no vector is aligned to; the elements next to the span must stay as they were.
TEST_P(ConvertOnEveryTarget, TouchesExactlyTheSpanAtEveryLengthAndAlignment) {
  std::vector<float> pool;
  Random random(kSeed, 2);
  for (int i = 0; i < 4200; ++i) {
    pool.push_back(static_cast<float>(random.normal()));
  }
  std::vector<size_t> lengths = {2047, 2048, 2049, 4101};
  for (size_t lanes : {1U, 4U, 8U, 16U}) {
    for (size_t length :
         {size_t{0}, size_t{1}, lanes - 1, lanes, lanes + 1, 4 * lanes / 3, 8 * lanes + 2}) {
      lengths.push_back(length);
    }
  }
  for (const ConvertOptions& options : all_options()) {
    for (size_t length : lengths) {
      for (size_t shift = 0; shift < 4; ++shift) {
        SCOPED_TRACE(concat(name(Format::bf16, options), " length ", length, " shift ", shift));
        const std::span<const float> values(pool.data() + shift, length);
        const std::vector<uint32_t> expected = reference(Format::bf16, values, options);
        std::vector<uint16_t> patterns(length + shift + 40, 0xA5A5);
        encode(Format::bf16, values, std::span(patterns).subspan(shift, length), options);
        std::vector<float> decoded(length + shift + 40, -7.0F);
        decode(Format::bf16, std::span<const uint16_t>(patterns).subspan(shift, length),
               std::span(decoded).subspan(shift, length));
        for (size_t i = 0; i < patterns.size(); ++i) {
          const bool inside = i >= shift && i < shift + length;
          ASSERT_EQ(patterns[i], inside ? expected[i - shift] : 0xA5A5U) << i;
          ASSERT_EQ(decoded[i], inside ? decode(Format::bf16, expected[i - shift]) : -7.0F) << i;
        }
      }
    }
  }
}

TEST_P(ConvertOnEveryTarget, StochasticElementsDependOnSeedStreamAndPositionOnly) {
  const std::vector<float> values(5000, 1.00137F);
  const ConvertOptions options = {
      .rounding = Rounding::stochastic, .seed = kSeed, .stream = kStream, .offset = 5};
  std::vector<uint16_t> whole(values.size());
  encode(Format::bf16, values, whole, options);
  std::vector<uint16_t> parts(values.size());
  for (size_t first = 0, size = 1; first < values.size(); first += size, size = size * 2 + 1) {
    ConvertOptions part = options;
    part.offset += first;
    const size_t count = std::min(size, values.size() - first);
    encode(Format::bf16, std::span(values).subspan(first, count),
           std::span(parts).subspan(first, count), part);
  }
  EXPECT_EQ(parts, whole);
  for (auto change : {&ConvertOptions::seed, &ConvertOptions::stream, &ConvertOptions::offset}) {
    ConvertOptions other = options;
    other.*change += uint64_t{1} << 33;
    encode(Format::bf16, values, parts, other);
    EXPECT_NE(parts, whole);
  }
}

TEST_P(ConvertOnEveryTarget, StochasticRoundingIsUnbiased) {
  SCOPED_TRACE(concat("seed ", kSeed));
  constexpr size_t kSamples = 1 << 16;
  uint64_t stream = 0;
  for (Format format :
       {Format::tf32, Format::bf16, Format::fp16, Format::fp8_e4m3, Format::fp8_e5m2}) {
    const FormatInfo& f = info(format);
    // In the normal and in the subnormal range, and below the smallest subnormal.
    for (double target : {1.1 + f.epsilon / 5, -3.7, f.smallest_normal * 1.01,
                          f.smallest_subnormal * 2.3, -f.smallest_subnormal * 0.125}) {
      const auto value = static_cast<float>(target);
      const std::vector<float> values(kSamples, value);
      std::vector<float> rounded(kSamples);
      round_to(format, values, rounded,
               {.rounding = Rounding::stochastic, .seed = kSeed, .stream = ++stream});
      double mean = 0.0;
      for (float sample : rounded) {
        mean += sample / double{kSamples};
      }
      // Each sample is one of two neighbours, so the variance follows from the distance.
      const double low = round_to(format, value, Rounding::toward_zero);
      const double gap = std::abs(round_to(format, value, Rounding::stochastic, 0xFFFFFFFF) - low);
      const double distance = gap == 0 ? 0 : std::abs(value - low) / gap;
      const double standard_error = gap * std::sqrt(distance * (1 - distance) / kSamples);
      EXPECT_NEAR(mean, value, 5 * standard_error)
          << to_string(format) << ' ' << value << " stream " << stream;
    }
  }
}

#if defined(__x86_64__)
TEST_P(ConvertOnEveryTarget, SubnormalsSurviveTheFlushToZeroModeOfTheProcessor) {
  constexpr unsigned kFlushToZeroAndDenormalsAreZero = 0x8040;
  for (Format format : {Format::bf16, Format::fp16, Format::fp8_e4m3}) {
    const std::vector<float> values = boundary_values(format);
    const std::vector<uint32_t> expected = reference(format, values, {});
    const bool is_8bit = info(format).storage_bits == 8;
    const unsigned mode = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(mode | kFlushToZeroAndDenormalsAreZero);
    const auto scalar = reference(format, values, {});
    const auto vector =
        is_8bit ? encoded<uint8_t>(format, values, {}) : encoded<uint16_t>(format, values, {});
    __builtin_ia32_ldmxcsr(mode);
    EXPECT_TRUE(same(scalar, expected)) << to_string(format);
    EXPECT_TRUE(same(vector, expected)) << to_string(format);
  }
}

TEST_P(ConvertOnEveryTarget, DecodingIsTheSameInFlushToZeroMode) {
  constexpr unsigned kFlushToZeroAndDenormalsAreZero = 0x8040;
  const unsigned mode = __builtin_ia32_stmxcsr();
  for (Format format : {Format::bf16, Format::fp16}) {
    const std::vector<uint16_t> patterns = {0x0001, 0x8001, 0x03FF, 0x007F, 0x0400, 0x8080};
    std::vector<float> expected(patterns.size());
    std::vector<float> values(patterns.size());
    decode(format, std::span<const uint16_t>(patterns), expected);
    __builtin_ia32_ldmxcsr(mode | kFlushToZeroAndDenormalsAreZero);
    decode(format, std::span<const uint16_t>(patterns), values);
    __builtin_ia32_ldmxcsr(mode);
    EXPECT_TRUE(same(bits_of(values), bits_of(expected))) << to_string(format);
    EXPECT_NE(values[0], 0.0F);
  }
}
#endif

TEST(Convert, RefusesSpansThatDoNotFit) {
  const std::vector<float> values(3);
  std::vector<uint16_t> wide(3);
  std::vector<uint8_t> narrow(2);
  const auto message = [](const std::function<void()>& call) -> std::string {
    try {
      call();
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "no error";
  };
  const std::string valid =
      "; valid: bf16 fp16 with 16, fp8_e4m3 fp8_e5m2 with 8, others by round_to";
  EXPECT_EQ(message([&] { encode(Format::tf32, values, wide); }),
            "encode: tf32 is stored in 32 bits but the patterns have 16" + valid);
  EXPECT_EQ(message([&] { decode(Format::fp8_e4m3, std::span<const uint16_t>(wide), {}); }),
            "decode: fp8_e4m3 is stored in 8 bits but the patterns have 16" + valid);
  EXPECT_EQ(message([&] { encode(Format::fp8_e5m2, values, narrow); }),
            "encode: spans of 3 and 2 elements; they must have one length");
  EXPECT_EQ(message([&] {
              std::vector<float> rounded(3);
              round_to(Format::bf16, values, rounded,
                       {.rounding = Rounding::stochastic,
                        .offset = std::numeric_limits<uint64_t>::max() - 1});
            }),
            "round_to: offset 18446744073709551614 with 3 elements passes the end of the random "
            "stream; its length is 2^64");
}

}  // namespace
}  // namespace mantissa::numerics
