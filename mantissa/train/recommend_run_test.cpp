#include "mantissa/train/recommend_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mantissa/train/tiny_run_test.h"

namespace mantissa::train {
namespace {

using ::testing::HasSubstr;

using RecommendRunTest = TinyRunTest;

// Weights grow to 10, with which a hidden layer passes 65504.
TEST_F(RecommendRunTest, WritesAPolicyThatCuresTheRunInItsFormat) {
  const std::vector<Setting> fault = {
      {"precision.compute", "fp16"}, {"optim.lr", "10"}, {"optim.warmup", "0"}};
  const RunConfig run = config(fault);
  const RunRecommendation cure = recommend_for_run(run, {.steps = 4});
  EXPECT_EQ(cure.health.ailment, Ailment::nonfinite);
  EXPECT_EQ(cure.cheapest.curable, Curable::by_range);
  EXPECT_EQ(cure.cheapest.policy.compute, numerics::Format::bf16);
  ASSERT_TRUE(cure.kept);
  EXPECT_EQ(cure.kept->curable, Curable::by_policy);
  const auto text = policy_file(run, cure);
  ASSERT_TRUE(text);
  EXPECT_THAT(*text, HasSubstr("# Found by mantissa inspect --recommend: well with FP32 for "));
  std::vector<Setting> cured = fault;
  cured.push_back({"precision.policy", root_.write("cure.toml", *text).string()});
  EXPECT_EQ(examine_run(config(cured), {.steps = 4}).ailment, Ailment::none);
}

TEST_F(RecommendRunTest, ALossScaleIsTheCheapestCureOfUnderflow) {
  const RunConfig run =
      config({{"precision.compute", "fp16"}, {"scale.kind", "static"}, {"scale.initial", "1e-6"}});
  const RunRecommendation cure = recommend_for_run(run);
  EXPECT_EQ(cure.health.ailment, Ailment::dead_gradients);
  EXPECT_EQ(cure.cheapest.curable, Curable::by_scale);
}

TEST_F(RecommendRunTest, ARunThatIsWellNeedsNone) {
  const RunRecommendation cure = recommend_for_run(config({{"precision.compute", "bf16"}}));
  EXPECT_EQ(cure.cheapest.curable, Curable::healthy);
  EXPECT_FALSE(policy_file(config({{"precision.compute", "bf16"}}), cure));
}

TEST_F(RecommendRunTest, SaysWhatPrecisionDoesNotCure) {
  const RunRecommendation cure = recommend_for_run(
      config({{"precision.compute", "bf16"}, {"optim.lr", "1e6"}, {"optim.warmup", "0"}}),
      {.steps = 3});
  EXPECT_EQ(cure.cheapest.curable, Curable::not_by_precision);
}

}  // namespace
}  // namespace mantissa::train
