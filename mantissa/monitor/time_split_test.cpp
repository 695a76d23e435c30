#include "mantissa/monitor/time_split.h"

#include <gtest/gtest.h>

namespace mantissa::monitor {
namespace {

// Each reading is a second after the one before.
double ticks = 0;
double tick() { return ++ticks; }

// Stands still.
double frozen_s = 0;
double frozen() { return frozen_s; }

TEST(TimeSplit, APhaseWithinAPhaseTakesItsTimeFromTheOuterOne) {
  frozen_s = 100;
  TimeSplit split(&frozen);
  frozen_s = 101;
  {
    const TimeSplit::Scope forward(&split, Phase::forward);
    EXPECT_EQ(split.current(), Phase::forward);
    frozen_s = 103;
    {
      const TimeSplit::Scope data(&split, Phase::data);
      frozen_s = 107;
    }
    EXPECT_EQ(split.current(), Phase::forward);
    frozen_s = 115;
  }
  frozen_s = 131;
  EXPECT_EQ(split.current(), Phase::other);
  EXPECT_EQ(split.seconds(Phase::forward), 2 + 8);
  EXPECT_EQ(split.seconds(Phase::data), 4);
  EXPECT_EQ(split.seconds(Phase::other), 1 + 16);
  EXPECT_EQ(split.seconds(Phase::backward), 0);
}

TEST(TimeSplit, PhasesAddUpToTheWhole) {
  frozen_s = 0;
  TimeSplit split(&frozen);
  for (const Phase phase : kPhases) {
    const TimeSplit::Scope outer(&split, phase);
    frozen_s += 1;
    const TimeSplit::Scope inner(&split, Phase::optimizer);
    frozen_s += 2;
  }
  double sum = 0;
  for (const Phase phase : kPhases) {
    sum += split.seconds(phase);
  }
  EXPECT_EQ(sum, split.total_s());
  EXPECT_EQ(sum, 18);
}

TEST(TimeSplit, APhaseThatGoesOnCountsUntilNow) {
  frozen_s = 0;
  TimeSplit split(&frozen);
  const TimeSplit::Scope backward(&split, Phase::backward);
  frozen_s = 5;
  EXPECT_EQ(split.seconds(Phase::backward), 5);
  frozen_s = 6;
  EXPECT_EQ(split.seconds(Phase::backward), 6);
}

TEST(TimeSplit, ASecondVisitAdds) {
  frozen_s = 0;
  TimeSplit split(&frozen);
  for (int i = 0; i < 3; ++i) {
    const TimeSplit::Scope forward(&split, Phase::forward);
    frozen_s += 1;
  }
  EXPECT_EQ(split.seconds(Phase::forward), 3);
}

TEST(TimeSplit, APhaseReadsTheClockTwice) {
  ticks = 0;
  TimeSplit split(&tick);
  { const TimeSplit::Scope forward(&split, Phase::forward); }
  EXPECT_EQ(ticks, 3);
}

TEST(TimeSplit, WithoutASplitAPhaseDoesNothing) {
  const TimeSplit::Scope forward(nullptr, Phase::forward);
}

TEST(TimeSplit, PhasesHaveNames) {
  EXPECT_EQ(to_string(Phase::data), "data");
  EXPECT_EQ(to_string(Phase::replay), "replay");
}

}  // namespace
}  // namespace mantissa::monitor
