#include "mantissa/base/student_t.h"

#include <cmath>
#include <numbers>

#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"

namespace mantissa {
namespace {

// The definition: the density, summed up by Simpson's rule from 0 to t.
double cdf_by_integration(double t, double degrees) {
  const double factor = std::exp(std::lgamma((degrees + 1) / 2) - std::lgamma(degrees / 2)) /
                        std::sqrt(degrees * std::numbers::pi);
  const auto density = [&](double x) {
    return factor * std::pow(1 + x * x / degrees, -(degrees + 1) / 2);
  };
  constexpr int kIntervals = 20'000;
  const double width = t / kIntervals;
  double sum = density(0) + density(t);
  for (int i = 1; i < kIntervals; ++i) {
    sum += (i % 2 == 1 ? 4 : 2) * density(i * width);
  }
  return 0.5 + sum * width / 3;
}

TEST(StudentT, CdfIsTheIntegralOfTheDensity) {
  for (const double degrees : {1.0, 2.0, 3.0, 4.0, 9.0, 30.0, 200.0}) {
    for (const double t : {-8.0, -2.5, -1.0, -0.01, 0.0, 0.3, 1.7, 6.0}) {
      // The rule's error is width^4 / 180 * t * f'''' < 1e-12; rounding of 20,000 sums below 1e-11.
      EXPECT_NEAR(student_t_cdf(t, degrees), cdf_by_integration(t, degrees), 1e-11)
          << t << " with " << degrees;
    }
  }
}

// Abramowitz and Stegun, table 26.10: quantiles, rounded to three decimals.
TEST(StudentT, QuantilesAreThoseOfPublishedTables) {
  struct Row {
    double degrees;
    double p950, p975, p995;
  };
  for (const Row& row :
       {Row{1, 6.314, 12.706, 63.657}, Row{2, 2.920, 4.303, 9.925}, Row{3, 2.353, 3.182, 5.841},
        Row{4, 2.132, 2.776, 4.604}, Row{9, 1.833, 2.262, 3.250}, Row{10, 1.812, 2.228, 3.169},
        Row{30, 1.697, 2.042, 2.750}, Row{120, 1.658, 1.980, 2.617}}) {
    constexpr double kRounded = 0.5e-3 + 1e-9;
    EXPECT_NEAR(student_t_quantile(0.95, row.degrees), row.p950, kRounded) << row.degrees;
    EXPECT_NEAR(student_t_quantile(0.975, row.degrees), row.p975, kRounded) << row.degrees;
    EXPECT_NEAR(student_t_quantile(0.995, row.degrees), row.p995, kRounded) << row.degrees;
  }
}

// With one degree it is Cauchy's distribution, with two it has a formula of its own.
TEST(StudentT, QuantilesOfOneAndTwoDegreesAreTheirFormulas) {
  for (const double p : {1e-6, 0.01, 0.2, 0.4, 0.5, 0.77, 0.999}) {
    EXPECT_NEAR(student_t_quantile(p, 1), std::tan(std::numbers::pi * (p - 0.5)),
                1e-9 * (1 + std::fabs(student_t_quantile(p, 1))));
    const double two = (2 * p - 1) / std::sqrt(2 * p * (1 - p));
    EXPECT_NEAR(student_t_quantile(p, 2), two, 1e-9 * (1 + std::fabs(two)));
  }
}

TEST(StudentT, TheQuantileInvertsTheCdf) {
  for (const double degrees : {1.0, 4.0, 37.0}) {
    for (const double p : {1e-4, 0.05, 0.5, 0.8, 0.975}) {
      EXPECT_NEAR(student_t_cdf(student_t_quantile(p, degrees), degrees), p, 1e-12);
    }
  }
}

TEST(StudentT, RefusesWhatHasNoAnswer) {
  EXPECT_EQ(message_of<InvalidArgument>([] { (void)student_t_cdf(1, 0); }),
            "student_t: 0 degrees of freedom; they must be above 0");
  EXPECT_EQ(message_of<InvalidArgument>([] { (void)student_t_quantile(1, 4); }),
            "student_t: probability 1; it must be between 0 and 1");
}

}  // namespace
}  // namespace mantissa
