#include "bench/measure.h"

#include <cmath>

#include <gmock/gmock.h>

#include "mantissa/base/random.h"

namespace mantissa::bench {
namespace {

using testing::DoubleEq;
using testing::Each;
using testing::SizeIs;

// A contest on a clock of its own: each call of a side takes the seconds that are given.
class FakeContest {
 public:
  FakeContest(double ours_s, double peer_s) : ours_s_(ours_s), peer_s_(peer_s) {}

  Samples run(Sampling sampling, double peer_factor = 1, int64_t operations = 1) {
    sampling.now = [this] { return time_s_; };
    return measure({.ours = [this] { call('a', ours_s_); },
                    .peer = [this] { call('b', peer_s_); },
                    .peer_factor = peer_factor,
                    .operations = operations},
                   sampling);
  }

  const std::string& calls() const { return calls_; }

 private:
  void call(char side, double seconds) {
    calls_ += side;
    time_s_ += seconds;
  }

  double ours_s_;
  double peer_s_;
  double time_s_ = 100;
  std::string calls_;
};

TEST(Measure, WarmsUpBothSidesAndThenAlternatesTheirOrder) {
  FakeContest contest(1, 2);
  const Samples samples = contest.run({.budget_s = 100, .least_pairs = 3, .most_pairs = 5});
  EXPECT_EQ(contest.calls(),
            "aabb"
            "ab"
            "ba"
            "ab"
            "ba"
            "ab");
  EXPECT_THAT(samples.ours, SizeIs(5));
  EXPECT_THAT(samples.ratios(), Each(DoubleEq(2)));
}

TEST(Measure, TakesAsManyPairsAsTheBudgetHolds) {
  // Warm-up takes 1 + 1 + 2 seconds, a pair 3.
  const Samples samples = FakeContest(1, 2).run({.budget_s = 30.5});
  EXPECT_THAT(samples.ours, SizeIs(8));
  EXPECT_DOUBLE_EQ(samples.spent_s, 28);
}

TEST(Measure, TakesTheLeastPairsAndOneWarmUpWhereTheBudgetHoldsNone) {
  FakeContest contest(10, 20);
  EXPECT_THAT(contest.run({.budget_s = 1, .least_pairs = 3}).ours, SizeIs(3));
  EXPECT_EQ(contest.calls(),
            "ab"
            "ab"
            "ba"
            "ab");
}

TEST(Measure, RepeatsShortActionsForASampleOfUsefulLength) {
  FakeContest contest(0.25, 0.5);
  const Samples samples =
      contest.run({.budget_s = 100, .least_pairs = 1, .most_pairs = 1, .sample_s = 1}, 1, 5);
  EXPECT_EQ(contest.calls(),
            "aabb"
            "aaaa"
            "bb");
  EXPECT_THAT(samples.ours, Each(DoubleEq(0.25 / 5)));
  EXPECT_THAT(samples.peer, Each(DoubleEq(0.5 / 5)));
}

TEST(Measure, PeerFactorScalesTheRatioAlone) {
  const Samples samples = FakeContest(1, 2).run({.budget_s = 100}, 1.5);
  EXPECT_THAT(samples.peer, Each(DoubleEq(2)));
  EXPECT_THAT(samples.ratios(), Each(DoubleEq(3)));
}

TEST(Summarize, WorstAndGeometricMeanOfTheMedians) {
  const std::vector<std::vector<double>> ratios = {{2, 2, 9}, {8, 8, 1}};
  EXPECT_DOUBLE_EQ(summarize(Summary::worst, ratios, 1).value, 2);
  EXPECT_DOUBLE_EQ(summarize(Summary::geometric_mean, ratios, 1).value, 4);
}

TEST(Summarize, WithoutScatterTheIntervalIsAPoint) {
  const Estimate estimate = summarize(Summary::worst, {{1.5, 1.5, 1.5}, {3, 3, 3}}, 1);
  EXPECT_EQ(estimate.low, 1.5);
  EXPECT_EQ(estimate.high, 1.5);
}

TEST(Summarize, SameSeedSameInterval) {
  const std::vector<std::vector<double>> ratios = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}};
  const Estimate first = summarize(Summary::worst, ratios, 7);
  const Estimate second = summarize(Summary::worst, ratios, 7);
  EXPECT_EQ(first.low, second.low);
  EXPECT_EQ(first.high, second.high);
  EXPECT_LT(first.low, first.value);
  EXPECT_GT(first.high, first.value);
}

// Normal ratios around 1 and a 95% interval: of 400 runs 380 should cover 1. The bootstrap of a
// median of 15 covers a little more than it says; 6 standard deviations (4.4 runs each) below is
// not chance, and an interval of twice the width would cover 399 or more.
TEST(Summarize, IntervalCoversTheTruthAsOftenAsItSays) {
  int covered = 0;
  for (uint64_t run = 0; run < 400; ++run) {
    Random random(11, run);
    std::vector<double> ratios(15);
    for (double& ratio : ratios) {
      ratio = 1 + 0.05 * random.normal();
    }
    const Estimate estimate = summarize(Summary::worst, {ratios}, run);
    covered += estimate.low <= 1 && 1 <= estimate.high ? 1 : 0;
  }
  EXPECT_GE(covered, 354);
  EXPECT_LE(covered, 397);
}

}  // namespace
}  // namespace mantissa::bench
