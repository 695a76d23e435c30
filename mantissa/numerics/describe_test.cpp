#include "mantissa/numerics/describe.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/numerics/exact.h"
#include "mantissa/numerics/rounding.h"

namespace mantissa::numerics {
namespace {

TEST(Describe, SaysWhatBf16MakesOfOneTenth) {
  const Description d = describe(Format::bf16, "0.1");
  EXPECT_EQ(d.pattern, 0x3DCDU);
  EXPECT_EQ(d.nearest, 0.10009765625);
  EXPECT_EQ(d.value, 0.1);
  EXPECT_EQ(d.error, 0.10009765625 - 0.1);
  EXPECT_EQ(d.relative_error, (0.10009765625 - 0.1) / 0.1);
  EXPECT_EQ(d.ulp, 0x1p-11);
  EXPECT_EQ(d.error_in_ulps, (0.10009765625 - 0.1) * 0x1p11);
  EXPECT_EQ(d.number_class, NumberClass::normal);
  EXPECT_EQ(d.sign_field, 0U);
  EXPECT_EQ(d.exponent_field, 123U);
  EXPECT_EQ(d.fraction_field, 77U);
  EXPECT_EQ(d.below, 0.099609375);
  EXPECT_EQ(d.above, 0.1005859375);
  EXPECT_EQ(d.below_pattern, 0x3DCCU);
  EXPECT_EQ(d.above_pattern, 0x3DCEU);
}

TEST(Describe, TakesADoubleAsItIs) {
  const Description d = describe(Format::bf16, 0.1);
  EXPECT_EQ(d.input, "0.1");
  EXPECT_EQ(d.pattern, 0x3DCDU);
}

TEST(Describe, RoundsADecimalOnceFromAllOfItsDigits) {
  EXPECT_EQ(describe(Format::bf16, "1.00390625000000000000000001").pattern, 0x3F81U);
  EXPECT_EQ(describe(Format::bf16, "1.00390625").pattern, 0x3F80U);
}

TEST(Describe, TakesABitPatternApart) {
  const Description hexadecimal = describe(Format::fp16, "bits:0x8001");
  EXPECT_EQ(hexadecimal.nearest, -0x1p-24);
  EXPECT_EQ(hexadecimal.number_class, NumberClass::subnormal);
  EXPECT_EQ(hexadecimal.error, 0.0);
  EXPECT_EQ(describe(Format::fp8_e4m3, "bits:0b01111110").nearest, 448.0);
  // A pattern is not re-encoded: this NaN keeps its payload.
  EXPECT_EQ(describe(Format::bf16, "bits:0xff81").pattern, 0xFF81U);
}

TEST(Describe, RefusesWhatIsNotAPattern) {
  for (const char* text :
       {"bits:", "bits:12", "bits:0x", "bits:0xg", "bits:0b2", "bits:0x-1", "bits:0x123456789"}) {
    EXPECT_THROW(describe(Format::bf16, text), InvalidArgument) << text;
  }
  try {
    describe(Format::bf16, "bits:3dcd");
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "number: cannot read \"bits:3dcd\"; write bits:0x and hexadecimal or bits:0b and "
                 "binary digits, at most 16 bits");
  }
  EXPECT_THROW(describe(Format::bf16, "bits:0x13dcd"), InvalidArgument);
}

TEST(Describe, NoErrorIsGivenWhereThereIsNone) {
  for (const char* text : {"inf", "nan", "1e30"}) {
    const Description d = describe(Format::fp16, text);
    EXPECT_TRUE(std::isnan(d.error)) << text;
    EXPECT_TRUE(std::isnan(d.relative_error)) << text;
    EXPECT_TRUE(std::isnan(d.error_in_ulps)) << text;
  }
  EXPECT_TRUE(std::isnan(describe(Format::fp16, "0").relative_error));
  EXPECT_EQ(describe(Format::fp16, "0").error, 0.0);
}

TEST(Describe, TheShortestDecimalReadsBackForEveryPattern) {
  for (Format format : {Format::fp8_e4m3, Format::fp8_e5m2, Format::bf16, Format::fp16}) {
    for (uint32_t pattern = 0; pattern < 1U << info(format).storage_bits; pattern += 3) {
      if (classify(format, pattern) != NumberClass::nan) {
        const std::string text = shortest_decimal(format, pattern);
        ASSERT_EQ(encode(format, parse_exact(text)), pattern) << to_string(format) << ' ' << text;
      }
    }
  }
  EXPECT_EQ(shortest_decimal(Format::bf16, 0x3DCD), "0.1");
  EXPECT_EQ(shortest_decimal(Format::fp32, 0x3DCCCCCD), "0.1");
  EXPECT_EQ(shortest_decimal(Format::bf16, 0xFF80), "-inf");
}

TEST(Describe, ExactDecimalsHaveEveryDigit) {
  EXPECT_EQ(exact_decimal(0.10009765625), "0.10009765625");
  EXPECT_EQ(exact_decimal(0x1p-24), "5.9604644775390625e-08");
  EXPECT_EQ(exact_decimal(-65504), "-65504");
  EXPECT_EQ(exact_decimal(0x1p-1074).size(), 751 + 1 + 5);  // 751 digits, the point, e-324
}

TEST(Describe, TextOfANormalNumber) {
  EXPECT_EQ(to_text(describe(Format::bf16, "0.1")),
            "bf16: 1 sign, 8 exponent, 7 fraction bits\n"
            "  input     0.1\n"
            "  nearest   0.1\n"
            "  exactly   0.10009765625\n"
            "  product   1.6015625 x 2^-4 = 205 x 2^-11\n"
            "  error     +9.76562e-05 = 0.2 ulp, relative 0.0009766\n"
            "  ulp       0.000488281 = 2^-11\n"
            "  below     0x3dcc  0.0996\n"
            "  above     0x3dce  0.1006\n"
            "  bits      0x3dcd  0|01111011|1001101\n"
            "  sign      0 (positive)\n"
            "  exponent  123 - bias 127 = -4\n"
            "  fraction  77 / 2^7\n"
            "  class     normal\n");
}

TEST(Describe, TextOfASubnormalNumber) {
  const std::string text = to_text(describe(Format::fp16, "-1e-7"));
  EXPECT_THAT(text, testing::HasSubstr("  product   -0.001953125 x 2^-14 = -1 x 2^-23\n"));
  EXPECT_THAT(text,
              testing::HasSubstr("  exponent  0 stands for 1 - bias 15 = -14 without a leading 1 "
                                 "(subnormal)\n"));
  EXPECT_THAT(text, testing::HasSubstr("  bits      0x8002  1|00000|0000000010\n"));
}

TEST(Describe, TextOfAnOverflowNamesTheLargestNumber) {
  const std::string text = to_text(describe(Format::fp8_e4m3, "1000"));
  EXPECT_THAT(text, testing::HasSubstr("  nearest   nan\n"));
  EXPECT_THAT(text, testing::HasSubstr("  error     overflow: the largest finite number is 448\n"));
  EXPECT_THAT(text, testing::HasSubstr("  class     nan\n"));
}

TEST(Describe, ANumberBeyondAllDoublesOverflowsOrUnderflowsAsWell) {
  EXPECT_THAT(to_text(describe(Format::fp16, "1e400")),
              testing::HasSubstr("  error     overflow: the largest finite number is 65504\n"));
  const Description tiny = describe(Format::fp16, "1e-400");
  EXPECT_TRUE(std::isnan(tiny.error));
  EXPECT_THAT(to_text(tiny), testing::HasSubstr("  error     underflow: "));
}

TEST(Describe, InfinityHasNoUlpAndNoError) {
  for (const char* text : {"inf", "bits:0x7c00"}) {
    EXPECT_THAT(to_text(describe(Format::fp16, text)),
                testing::HasSubstr("  error     none\n  ulp       none\n"))
        << text;
  }
}

TEST(Describe, TextOfAnExactNumberAndOfZero) {
  EXPECT_THAT(to_text(describe(Format::fp16, "1.5")),
              testing::HasSubstr("  error     0 (exact)\n"));
  EXPECT_THAT(to_text(describe(Format::fp16, "-0")), testing::HasSubstr("  nearest   -0\n"));
}

TEST(Describe, JsonHasTheFieldsOfTheText) {
  const auto json = nlohmann::json::parse(to_json(describe(Format::bf16, "0.1")));
  EXPECT_EQ(json["format"], "bf16");
  EXPECT_EQ(json["input"], "0.1");
  EXPECT_EQ(json["bits"], "0x3dcd");
  EXPECT_EQ(json["nearest"], 0.10009765625);
  EXPECT_EQ(json["exponent"], 123);
  EXPECT_EQ(json["class"], "normal");
  EXPECT_EQ(json["below_bits"], "0x3dcc");
  EXPECT_EQ(json["ulp"], 0x1p-11);
  const auto infinite = nlohmann::json::parse(to_json(describe(Format::bf16, "-inf")));
  EXPECT_EQ(infinite["nearest"], "-inf");
  EXPECT_EQ(infinite["error"], "nan");
}

}  // namespace
}  // namespace mantissa::numerics
