#include "mantissa/train/progress.h"

#include <cmath>

#include <gtest/gtest.h>

namespace mantissa::train {
namespace {

TEST(Progress, StateSurvivesWithNonDefaultValues) {
  Progress progress;
  progress.step = 11;
  progress.skipped = 3;
  progress.skipped_in_row = 2;
  progress.validated_step = 10;
  progress.best_step = 5;
  progress.validations_since_best = 1;
  progress.best_bits = 1.9;
  progress.validation_bits = 1.95;
  progress.loss = 1.3;
  Progress loaded;
  loaded.load_state_dict(progress.state_dict());
  EXPECT_EQ(loaded.step, 11);
  EXPECT_EQ(loaded.skipped, 3);
  EXPECT_EQ(loaded.skipped_in_row, 2);
  EXPECT_EQ(loaded.validated_step, 10);
  EXPECT_EQ(loaded.best_step, 5);
  EXPECT_EQ(loaded.validations_since_best, 1);
  EXPECT_EQ(loaded.best_bits, 1.9);
  EXPECT_EQ(loaded.validation_bits, 1.95);
  EXPECT_EQ(loaded.loss, 1.3);
}

TEST(Progress, CountsSkipsInARow) {
  Progress progress;
  for (bool skipped : {true, true, false, true}) {
    progress.count_outcome(skipped);
  }
  EXPECT_EQ(progress.skipped, 3);
  EXPECT_EQ(progress.skipped_in_row, 1);
}

TEST(Progress, OnlyALowerValidationIsANewBest) {
  Progress progress;
  progress.step = 10;
  progress.count_validation(1.9);
  progress.step = 20;
  progress.count_validation(1.9);
  progress.step = 30;
  progress.count_validation(std::nan(""));
  EXPECT_EQ(progress.best_step, 10);
  EXPECT_EQ(progress.validations_since_best, 2);
  progress.count_validation(1.8);
  EXPECT_EQ(progress.best_step, 30);
  EXPECT_EQ(progress.validations_since_best, 0);
}

TEST(Progress, MedianOfStepTimesIgnoresOtherEvents) {
  Progress progress;
  EXPECT_TRUE(std::isnan(progress.median_step_time_s()));
  for (double time : {3.0, 1.0, 2.0}) {
    record::Step step{};
    step.step_time_s = time;
    progress.note(step);
  }
  progress.note(record::Evaluation{});
  EXPECT_EQ(progress.median_step_time_s(), 2.0);
}

}  // namespace
}  // namespace mantissa::train
