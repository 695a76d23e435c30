#include "mantissa/base/equivalence.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/base/random.h"

namespace mantissa {
namespace {

std::vector<double> drawn(uint64_t run, size_t count, double mean, double deviation) {
  Random random(5, run);
  std::vector<double> values(count);
  for (double& value : values) {
    value = mean + deviation * random.normal();
  }
  return values;
}

// By hand: mean 0.3, squares 0.04 + 0.01 + 0 + 0.01 + 0.04 = 0.1, deviation sqrt(0.025) = 0.158114,
// error 0.0707107; t[0.95, 4] = 2.131847, t[0.975, 4] = 2.776445, t[0.8, 4] = 0.940965 (tables).
TEST(Equivalence, IsWhatOneComputesByHand) {
  const Equivalence test = paired_equivalence({0.1, 0.2, 0.3, 0.4, 0.5}, 0.5);
  EXPECT_EQ(test.pairs, 5U);
  EXPECT_DOUBLE_EQ(test.mean, 0.3);
  EXPECT_NEAR(test.deviation, 0.158114, 1e-6);
  EXPECT_NEAR(test.low, 0.3 - 0.150744, 1e-6);
  EXPECT_NEAR(test.high, 0.3 + 0.150744, 1e-6);
  EXPECT_NEAR(test.provable_margin, 0.450744, 1e-6);
  EXPECT_NEAR(test.detectable, 0.262861, 1e-6);
  // t = 0.3 / 0.0707107 = 4.2426: p = 0.0132 (the table has 3.747 for 0.02 and 4.604 for 0.01).
  EXPECT_NEAR(test.p_different, 0.0132, 5e-5);
  // t = -0.2 / 0.0707107 = -2.8284, one-sided: 0.0237.
  EXPECT_NEAR(test.p_equivalent, 0.0237, 5e-5);
  EXPECT_EQ(test.verdict, EquivalenceVerdict::equivalent);
}

TEST(Equivalence, TheVerdictIsEquivalentExactlyBeyondTheProvableMargin) {
  for (uint64_t run = 0; run < 50; ++run) {
    const std::vector<double> differences = drawn(run, 2 + run % 7, 0.1, 1);
    const double bound = paired_equivalence(differences, 1).provable_margin;
    EXPECT_EQ(paired_equivalence(differences, bound * 1.001).verdict,
              EquivalenceVerdict::equivalent);
    EXPECT_NE(paired_equivalence(differences, bound * 0.999).verdict,
              EquivalenceVerdict::equivalent);
  }
}

TEST(Equivalence, HasThreeVerdicts) {
  EXPECT_EQ(paired_equivalence({0.01, -0.01, 0.02}, 0.1).verdict, EquivalenceVerdict::equivalent);
  EXPECT_EQ(paired_equivalence({0.31, 0.29, 0.32}, 0.1).verdict, EquivalenceVerdict::different);
  EXPECT_EQ(paired_equivalence({-0.31, -0.29, -0.32}, 0.1).verdict, EquivalenceVerdict::different);
  EXPECT_EQ(paired_equivalence({0.3, -0.2, 0.1}, 0.1).verdict, EquivalenceVerdict::inconclusive);
}

// Two seeds show little: t[0.95, 1] is 6.3.
TEST(Equivalence, TwoPairsThatScatterAreInconclusive) {
  const Equivalence test = paired_equivalence({0.004, -0.002}, 0.01);
  EXPECT_EQ(test.verdict, EquivalenceVerdict::inconclusive);
  EXPECT_NEAR(test.provable_margin, 0.001 + 6.3138 * 0.003, 1e-5);
}

TEST(Equivalence, WithoutScatterTheIntervalIsAPoint) {
  const Equivalence same = paired_equivalence({0, 0, 0}, 0.01);
  EXPECT_EQ(same.verdict, EquivalenceVerdict::equivalent);
  EXPECT_EQ(same.p_equivalent, 0);
  EXPECT_EQ(same.p_different, 1);
  EXPECT_EQ(same.provable_margin, 0);
  EXPECT_EQ(paired_equivalence({0.5, 0.5}, 0.01).verdict, EquivalenceVerdict::different);
}

// Were the true difference at the margin, 5 % of experiments may call it equivalent: of 4,000, 200
// with a standard deviation of 14; 6 of these are no chance.
TEST(Equivalence, ErrsAtTheMarginAsOftenAsItSays) {
  int equivalent = 0;
  for (uint64_t run = 0; run < 4000; ++run) {
    // The margin is far from 0 beside the error, so that the other test has no part in it.
    const Equivalence test = paired_equivalence(drawn(run, 5, 10, 1), 10);
    equivalent += test.verdict == EquivalenceVerdict::equivalent ? 1 : 0;
  }
  EXPECT_NEAR(equivalent, 200, 6 * 14);
}

// A true difference of what is detectable at the true deviation is found in about 80 of 100. The
// approximation gives 0.79 for five pairs (by 40,000 experiments outside of this library); of 4,000
// that is 3,160 with a standard deviation of 26; 6 of these are no chance.
TEST(Equivalence, FindsWhatItCallsDetectableInAboutFourOfFive) {
  // (t[0.975, 4] + t[0.8, 4]) / sqrt(5), from tables.
  constexpr double kDetectable = (2.776445 + 0.940965) / 2.2360680;
  int found = 0;
  for (uint64_t run = 0; run < 4000; ++run) {
    found += paired_equivalence(drawn(run, 5, kDetectable, 1), 1e-9).p_different < 0.05 ? 1 : 0;
  }
  EXPECT_NEAR(found, 3160, 6 * 26);
}

TEST(Equivalence, RefusesWhatCannotBeTested) {
  EXPECT_EQ(message_of<InvalidArgument>([] { (void)paired_equivalence({1}, 1); }),
            "equivalence: 1 differences; a test needs at least 2");
  EXPECT_EQ(message_of<InvalidArgument>([] {
              (void)paired_equivalence({1, 2}, 0);
            }),
            "equivalence: margin 0; it must be above 0");
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(message_of<InvalidArgument>([] {
              (void)paired_equivalence({1, kNan}, 1);
            }),
            "equivalence: a difference is not finite; leave that pair out");
}

}  // namespace
}  // namespace mantissa
