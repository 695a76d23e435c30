#include "mantissa/train/next_steps.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/train/loop.h"
#include "mantissa/train/tiny_run_test.h"

namespace mantissa::train {
namespace {

using NextStepsTest = TinyRunTest;

std::vector<double> losses(const NextSteps& steps, const RunConfig& config) {
  const auto learner = steps.learner(config);
  std::vector<double> result;
  EXPECT_FALSE(steps.train(*learner, config, steps.num_steps(),
                           [&](const StepReport& report) { result.push_back(report.loss); }));
  return result;
}

// Of the run itself, which is trained in `folder`.
std::vector<double> losses_of(const RunConfig& run, const std::filesystem::path& folder) {
  std::vector<double> result;
  LoopOptions options;
  options.observe = [&](const record::Event& event) {
    if (const auto* step = std::get_if<record::Step>(&event)) {
      result.push_back(step->loss);
    }
  };
  (void)start_run(run, folder, options);
  return result;
}

TEST_F(NextStepsTest, AreThoseOfTheRunAndTheSameEachTime) {
  const RunConfig run = config({{"model.dropout", "0.1"}});
  std::vector<double> expected = losses_of(run, root_ / "run");
  expected.resize(3);
  const NextSteps steps(run, {.steps = 3});
  EXPECT_EQ(losses(steps, steps.config()), expected);
  EXPECT_EQ(losses(steps, steps.config()), expected);
}

TEST_F(NextStepsTest, GoOnFromACheckpoint) {
  const RunConfig run = config({{"train.checkpoint_every", "4"}});
  const std::vector<double> expected = losses_of(run, root_ / "run");
  const NextSteps steps(run, {.steps = 1, .checkpoint = root_ / "run" / "checkpoints" / "step-8"});
  EXPECT_EQ(steps.first_step(), 9);
  EXPECT_EQ(losses(steps, steps.config()), std::vector<double>{expected[8]});
}

TEST_F(NextStepsTest, RunUnderOtherPolicies) {
  const NextSteps steps(config({{"precision.compute", "bf16"}}), {.steps = 2});
  const RunConfig wide = with_policy(steps.config(), amp::find_policy("fp32"));
  EXPECT_EQ(wide.precision.compute, "fp32");
  EXPECT_EQ(losses(steps, wide), losses(steps, NextSteps(config(), {.steps = 2}).config()));
  EXPECT_NE(losses(steps, wide), losses(steps, steps.config()));
}

// A scale that begins too high comes down and is no failure; one that is fixed is.
TEST_F(NextStepsTest, AScaleOnItsWayDownIsNoFailure) {
  RunConfig run = config({{"precision.compute", "fp16"}, {"scale.initial", "1e9"}});
  const NextSteps steps(run, {.steps = 2});
  EXPECT_EQ(losses(steps, steps.config()).size(), 2U);
  RunConfig fixed = steps.config();
  fixed.scale.kind = "static";
  const auto learner = steps.learner(fixed);
  const auto failed = steps.train(*learner, fixed, 2);
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->step, 1);
  EXPECT_THAT(failed->why, ::testing::HasSubstr("the loss scale was too large; 4 sequences from"));
}

TEST_F(NextStepsTest, FewerStepsThanOneAreRefused) {
  EXPECT_THAT([&] { NextSteps(config(), {.steps = 0}); },
              ::testing::ThrowsMessage<InvalidArgument>("inspect: steps is 0; use 1 or more"));
}

}  // namespace
}  // namespace mantissa::train
