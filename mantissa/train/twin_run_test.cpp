#include "mantissa/train/twin_run.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/train/tiny_run_test.h"

namespace mantissa::train {
namespace {

using TwinRunTest = TinyRunTest;

TEST_F(TwinRunTest, ComparesEveryLayerForwardAndBackward) {
  const TwinRun twin = inspect_twin(config({{"precision.compute", "bf16"}}), {.steps = 2});
  EXPECT_EQ(twin.step, 2);
  EXPECT_EQ(twin.scale, 1);
  EXPECT_EQ(twin.report.unmatched, 0);
  int64_t in_attention = 0;
  int64_t of_parameters = 0;
  for (const monitor::TwinRow& row : twin.report.rows) {
    in_attention += row.scope == "blocks.0.attention" ? 1 : 0;
    of_parameters += row.place == monitor::TwinPlace::parameter ? 1 : 0;
    EXPECT_TRUE(std::isfinite(row.relative_error)) << row.operation;
    if (row.own_error && row.bound) {
      EXPECT_LE(*row.own_error, *row.bound) << row.operation;
    }
  }
  EXPECT_GT(in_attention, 4);
  EXPECT_EQ(of_parameters, 11);
}

// 16-bit parameters are the weights of both.
TEST_F(TwinRunTest, ATwinOf16BitParametersHasThose) {
  const TwinRun twin =
      inspect_twin(config({{"precision.compute", "bf16"}, {"precision.param", "bf16"}}));
  EXPECT_EQ(twin.report.unmatched, 0);
  for (const monitor::TwinRow& row : twin.report.rows) {
    EXPECT_LT(row.relative_error, 0.5) << row.operation << " " << row.scope;
  }
}

TEST_F(TwinRunTest, AScaleOnItsWayDownIsLoweredFirst) {
  const TwinRun twin =
      inspect_twin(config({{"precision.compute", "fp16"}, {"scale.initial", "1e12"}}));
  EXPECT_LT(twin.scale, 1e12);
  for (const monitor::TwinRow& row : twin.report.rows) {
    EXPECT_EQ(row.nonfinite, 0) << row.operation;
  }
}

TEST_F(TwinRunTest, ARunInFp32HasNone) {
  EXPECT_THAT([&] { (void)inspect_twin(config()); },
              ::testing::ThrowsMessage<InvalidArgument>(
                  "inspect: a twin is FP32, and this run computes in fp32; add --precision bf16 or "
                  "fp16"));
}

TEST_F(TwinRunTest, AStepBeforeThatFailsIsNamed) {
  const RunConfig run =
      config({{"precision.compute", "fp16"}, {"optim.lr", "1e5"}, {"optim.warmup", "0"}});
  EXPECT_THAT([&] { (void)inspect_twin(run, {.steps = 4}); },
              ::testing::ThrowsMessage<Error>(::testing::AllOf(
                  ::testing::StartsWith("inspect: step 2, before the one to compare, failed: "),
                  ::testing::HasSubstr("compare that one, with --steps 2"))));
  EXPECT_EQ(inspect_twin(run, {.steps = 2}).report.first->kind, monitor::Divergence::nonfinite);
}

}  // namespace
}  // namespace mantissa::train
