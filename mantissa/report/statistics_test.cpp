#include "mantissa/report/statistics.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace mantissa::report {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(Statistics, LeaveOutWhatIsNotFinite) {
  EXPECT_EQ(mean({1, kNaN, 3, kInfinity}), 2);
  EXPECT_EQ(quantile({5, kNaN, 1, 3}, 0.5), 3);
  EXPECT_NEAR(standard_deviation({1, 3, -kInfinity}), std::sqrt(2.0), 1e-15);
}

TEST(Statistics, OfNothingAreNotKnown) {
  EXPECT_TRUE(std::isnan(mean({})));
  EXPECT_TRUE(std::isnan(quantile({kNaN}, 0.5)));
  EXPECT_TRUE(std::isnan(standard_deviation({1})));
}

TEST(Statistics, AQuantileLiesBetweenTheTwoNearest) {
  EXPECT_EQ(quantile({4, 1, 2, 3}, 0.5), 2.5);
  EXPECT_EQ(quantile({4, 1, 2, 3}, 0), 1);
  EXPECT_EQ(quantile({4, 1, 2, 3}, 1), 4);
  EXPECT_EQ(quantile({0, 10}, 0.95), 9.5);
  EXPECT_EQ(quantile({7}, 0.95), 7);
}

}  // namespace
}  // namespace mantissa::report
