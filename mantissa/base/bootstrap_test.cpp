#include "mantissa/base/bootstrap.h"

#include <gtest/gtest.h>

#include "mantissa/base/random.h"

namespace mantissa {
namespace {

TEST(Median, OfOddAndEvenNumbers) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
}

TEST(Bootstrap, WithoutScatterTheIntervalIsAPoint) {
  const Estimate estimate = bootstrap_median({1.5, 1.5, 1.5}, 1);
  EXPECT_EQ(estimate.value, 1.5);
  EXPECT_EQ(estimate.low, 1.5);
  EXPECT_EQ(estimate.high, 1.5);
}

TEST(Bootstrap, SameSeedSameInterval) {
  const std::vector<double> samples = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  const Estimate first = bootstrap_median(samples, 7);
  const Estimate second = bootstrap_median(samples, 7);
  EXPECT_EQ(first.low, second.low);
  EXPECT_EQ(first.high, second.high);
  EXPECT_LT(first.low, first.value);
  EXPECT_GT(first.high, first.value);
}

// All 3^3 equally likely draws of {1, 2, 4} have the median 1 in 7 of 27, 2 in 13 and 4 in 7, so
// the 2.5 and 97.5 percentiles are 1 and 4.
TEST(Bootstrap, TheIntervalIsThatOfAllDraws) {
  const Estimate estimate = bootstrap_median({4, 1, 2}, 3);
  EXPECT_EQ(estimate.value, 2);
  EXPECT_EQ(estimate.low, 1);
  EXPECT_EQ(estimate.high, 4);
}

TEST(Bootstrap, EachGroupIsDrawnFromAlone) {
  const std::vector<std::vector<double>> groups = {{1, 2}, {10, 20, 30}};
  (void)bootstrap(
      groups,
      [&](const auto& drawn) {
        EXPECT_EQ(drawn[0].size(), 2U);
        EXPECT_EQ(drawn[1].size(), 3U);
        EXPECT_LE(drawn[0][0], 2);
        EXPECT_GE(drawn[1][2], 10);
        return 0.0;
      },
      1);
}

// Of 400 experiments 380 should cover the true median. The bootstrap of a median of 15 covers a
// little more than it says; 6 standard deviations (4.4 each) below is not chance, and an interval
// of twice the width would cover 399 or more.
TEST(Bootstrap, CoversTheTruthAsOftenAsItSays) {
  int covered = 0;
  for (uint64_t run = 0; run < 400; ++run) {
    Random random(11, run);
    std::vector<double> samples(15);
    for (double& sample : samples) {
      sample = 1 + 0.05 * random.normal();
    }
    const Estimate estimate = bootstrap_median(samples, run);
    covered += estimate.low <= 1 && 1 <= estimate.high ? 1 : 0;
  }
  EXPECT_GE(covered, 354);
  EXPECT_LE(covered, 397);
}

}  // namespace
}  // namespace mantissa
