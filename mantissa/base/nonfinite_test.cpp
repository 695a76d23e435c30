#include "mantissa/base/nonfinite.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace mantissa {
namespace {

TEST(Nonfinite, NamesAndValuesAreInverse) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(nonfinite_value(nonfinite_name(kInfinity).value()), kInfinity);
  EXPECT_EQ(nonfinite_value(nonfinite_name(-kInfinity).value()), -kInfinity);
  EXPECT_TRUE(std::isnan(nonfinite_value(nonfinite_name(std::nan("")).value()).value()));
}

TEST(Nonfinite, FiniteNumbersHaveNoName) {
  EXPECT_FALSE(nonfinite_name(0.0).has_value());
  EXPECT_FALSE(nonfinite_name(std::numeric_limits<double>::max()).has_value());
}

TEST(Nonfinite, OtherTextIsNoValue) {
  for (const char* text : {"", "1", "Inf", "infinity", "+inf", "NaN"}) {
    EXPECT_FALSE(nonfinite_value(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace mantissa
