#include "mantissa/numerics/format.h"

#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "mantissa/base/error.h"

namespace mantissa::numerics {
namespace {

TEST(Format, NamesParseBack) {
  for (Format format : kFormats) {
    EXPECT_EQ(parse_format(to_string(format)), format);
  }
}

TEST(Format, UnknownNameIsAnErrorWithTheNearest) {
  try {
    parse_format("bf61");
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "format: unknown \"bf61\"; did you mean \"bf16\"?");
  }
}

// The derived columns follow from the bit widths.
TEST(Format, ValuesFollowFromTheBits) {
  for (Format format : kFormats) {
    const FormatInfo& f = info(format);
    SCOPED_TRACE(std::string(f.name));
    EXPECT_EQ(f.epsilon, std::ldexp(1.0, -f.fraction_bits));
    EXPECT_EQ(f.smallest_normal, std::ldexp(1.0, 1 - f.bias));
    EXPECT_EQ(f.smallest_subnormal, std::ldexp(1.0, 1 - f.bias - f.fraction_bits));
    // e4m3 uses the top exponent for numbers too and loses only its last pattern to NaN.
    const int top_exponent = (1 << f.exponent_bits) - (f.has_infinity ? 2 : 1) - f.bias;
    const double top_fraction = 2.0 - f.epsilon * (f.has_infinity ? 1 : 2);
    EXPECT_EQ(f.max, std::ldexp(top_fraction, top_exponent));
  }
}

}  // namespace
}  // namespace mantissa::numerics
