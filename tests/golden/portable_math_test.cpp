#include "portable_math.h"

#include <cmath>

#include <gtest/gtest.h>

namespace mantissa::golden {
namespace {

double ulp(double value) {
  const auto magnitude = static_cast<float>(std::fabs(value));
  return std::nextafter(magnitude, INFINITY) - magnitude;
}

TEST(PortableMath, ExpIsWithinItsBoundOfTheLibrarys) {
  for (int i = 0; i <= 80'000; ++i) {
    const auto x = static_cast<float>(-i * 0.001);
    const double exact = std::exp(static_cast<double>(x));
    ASSERT_LE(std::fabs(portable_exp(x) - exact), 0.51 * ulp(exact)) << "x = " << x;
  }
  EXPECT_EQ(portable_exp(0.0F), 1.0F);
}

TEST(PortableMath, LogIsWithinItsBoundOfTheLibrarys) {
  for (int i = 1; i <= 80'000; ++i) {
    const auto x = static_cast<float>(i * 0.0001);
    const double exact = std::log(static_cast<double>(x));
    ASSERT_LE(std::fabs(portable_log(x) - exact), 0.51 * ulp(exact)) << "x = " << x;
  }
  EXPECT_EQ(portable_log(1.0F), 0.0F);
}

TEST(PortableMath, PowersArePowers) {
  EXPECT_EQ(portable_power(0.5, 10), 0x1p-10);
  EXPECT_EQ(portable_power(3.0, 0), 1.0);
  EXPECT_NEAR(portable_power(0.9, 40), std::pow(0.9, 40), 40 * 0x1p-53);
}

}  // namespace
}  // namespace mantissa::golden
