#include "mantissa/numerics/exact.h"

#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/random.h"
#include "mantissa/numerics/rounding.h"

namespace mantissa::numerics {
namespace {

void expect_equal(const Exact& a, const Exact& b) {
  EXPECT_EQ(a.kind, b.kind);
  EXPECT_EQ(a.negative, b.negative);
  EXPECT_EQ(a.exponent, b.exponent);
  EXPECT_EQ(a.significand, b.significand);
}

TEST(Exact, TakesFloatsAndDoublesApart) {
  EXPECT_EQ(exact(1.0).exponent, 0);
  EXPECT_EQ(exact(1.0).significand, uint64_t{1} << 63);
  EXPECT_EQ(exact(0x1p-149F).exponent, -149);
  EXPECT_EQ(exact(0x1p-1074).exponent, -1074);
  EXPECT_EQ(exact(-0.0).significand, 0U);
  EXPECT_TRUE(exact(-0.0).negative);
  EXPECT_EQ(exact(std::numeric_limits<double>::infinity()).kind, Exact::Kind::infinity);
  EXPECT_EQ(exact(std::numeric_limits<float>::quiet_NaN()).kind, Exact::Kind::nan);
}

TEST(Exact, DoublesComeBack) {
  constexpr uint64_t kSeed = 11;
  SCOPED_TRACE(concat("seed ", kSeed));
  Random random(kSeed, 0);
  for (int i = 0; i < 10000; ++i) {
    const auto value = std::bit_cast<double>(random.next_u64());
    if (!std::isnan(value)) {
      EXPECT_EQ(to_double(exact(value)), value);
    }
  }
  EXPECT_EQ(to_double(exact(0x1p-1074)), 0x1p-1074);
}

TEST(Exact, ReadsWhatTheFormatsOfNumbersAllow) {
  expect_equal(parse_exact("0.1e1"), exact(1.0));
  expect_equal(parse_exact("+.5"), exact(0.5));
  expect_equal(parse_exact("5."), exact(5.0));
  expect_equal(parse_exact("-0"), exact(-0.0));
  expect_equal(parse_exact("000123.4500E+2"), exact(12345.0));
  expect_equal(parse_exact("0x1.8p-3"), exact(0.1875));
  expect_equal(parse_exact("-0XfF"), exact(-255.0));
  expect_equal(parse_exact("0x.0001p16"), exact(1.0));
  expect_equal(parse_exact("-INF"), exact(-std::numeric_limits<double>::infinity()));
  expect_equal(parse_exact("Infinity"), exact(std::numeric_limits<double>::infinity()));
  EXPECT_EQ(parse_exact("NaN").kind, Exact::Kind::nan);
}

TEST(Exact, RefusesTheRest) {
  for (const char* text : {"", "-", ".", "e5", "1e", "1e+", "1.2.3", "0x", "0x1p", "1 ", " 1",
                           "--1", "1,5", "in", "nanx", "0x1.8p-3z", "10x1", "-x5"}) {
    EXPECT_THROW(parse_exact(text), InvalidArgument) << text;
  }
  try {
    parse_exact("12 apples");
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "number: cannot read \"12 apples\"; write a decimal (-1.5e-3), a hexadecimal "
                 "number (0x1.8p-3), inf or nan");
  }
}

// 1 + 2^-8 is the middle between the bf16 numbers 1 and 1 + 2^-7: a tie goes to the even 1.
TEST(Exact, DigitsBeyondDoubleDecideATie) {
  const std::string zeros(900, '0');
  EXPECT_EQ(encode(Format::bf16, parse_exact("1.00390625")), 0x3F80U);
  EXPECT_EQ(encode(Format::bf16, parse_exact("1.00390625" + zeros)), 0x3F80U);
  EXPECT_EQ(encode(Format::bf16, parse_exact("1.00390625000000000000000001")), 0x3F81U);
  EXPECT_EQ(encode(Format::bf16, parse_exact("1.00390625" + zeros + "1")), 0x3F81U);
  EXPECT_EQ(encode(Format::bf16, parse_exact("1.00390624999999999999999999")), 0x3F80U);
  // The odd lower neighbour: the tie goes up, a little less does not.
  EXPECT_EQ(encode(Format::bf16, parse_exact("1.01171875")), 0x3F82U);
  EXPECT_EQ(encode(Format::bf16, parse_exact("1.01171874999999999999999999")), 0x3F81U);
  EXPECT_EQ(encode(Format::bf16, parse_exact("0x1.01")), 0x3F80U);
  EXPECT_EQ(encode(Format::bf16, parse_exact("0x1.01000000000000000000001")), 0x3F81U);
  EXPECT_EQ(encode(Format::bf16, parse_exact("0x1.0100000000000000000000000")), 0x3F80U);
}

// By way of fp32 both would be the tie.
TEST(Exact, RoundsOnceAndNotByWayOfFp32) {
  EXPECT_EQ(encode(Format::bf16, parse_exact("1.00390625000000001")), 0x3F81U);
  EXPECT_EQ(encode(Format::bf16, 1.00390625000000001F), 0x3F80U);
}

TEST(Exact, NumbersThatNoDoubleHoldsOverflowAndUnderflow) {
  EXPECT_EQ(encode(Format::fp32, parse_exact("1e999999999999")), 0x7F800000U);
  EXPECT_EQ(encode(Format::fp32, parse_exact("-1e-999999999999")), 0x80000000U);
  EXPECT_EQ(encode(Format::fp32, parse_exact("0x1p-99999")), 0U);
  EXPECT_EQ(encode(Format::fp32, parse_exact("0x1p99999")), 0x7F800000U);
  EXPECT_EQ(encode(Format::fp32, parse_exact("0e999999999999")), 0U);
  // Half of the smallest subnormal is a tie with zero; any more is not.
  EXPECT_EQ(encode(Format::fp32, parse_exact("0x1p-150")), 0U);
  EXPECT_EQ(encode(Format::fp32, parse_exact("0x1.00000000000000000000000001p-150")), 1U);
}

// 2^-1074 = 4.94e-324 is the smallest double; 2.47e-324 is its half.
TEST(Exact, TheNearestDoubleIsRightDownToTheSmallest) {
  EXPECT_EQ(to_double(parse_exact("2.4703e-324")), 0.0);
  EXPECT_EQ(to_double(parse_exact("2.4704e-324")), 0x1p-1074);
  EXPECT_EQ(to_double(parse_exact("7.4e-324")), 0x1p-1074);
  EXPECT_EQ(to_double(parse_exact("7.5e-324")), 0x2p-1074);
  EXPECT_EQ(to_double(parse_exact("1.2e-322")), 1.2e-322);
  EXPECT_EQ(to_double(parse_exact("1.8e308")), std::numeric_limits<double>::infinity());
}

// What std::stod of the C library rounds correctly, we must too.
TEST(Exact, AgreesWithTheCLibraryOnRandomDecimals) {
  constexpr uint64_t kSeed = 12;
  SCOPED_TRACE(concat("seed ", kSeed));
  Random random(kSeed, 0);
  for (int i = 0; i < 5000; ++i) {
    const std::string text = concat(random.next_u64(), ".", random.next_u64(), "e",
                                    static_cast<int>(random.below(80)) - 60);
    EXPECT_EQ(to_double(parse_exact(text)), std::stod(text)) << text;
    EXPECT_EQ(decode(Format::fp32, encode(Format::fp32, parse_exact(text))),
              std::strtof(text.c_str(), nullptr))
        << text;
  }
}

}  // namespace
}  // namespace mantissa::numerics
