#include "mantissa/train/run_health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mantissa/train/tiny_run_test.h"

namespace mantissa::train {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using RunHealthTest = TinyRunTest;

TEST_F(RunHealthTest, ARunThatIsWell) {
  for (const char* compute : {"fp32", "bf16", "fp16"}) {
    const RunHealth health = examine_run(config({{"precision.compute", compute}}), {.steps = 2});
    EXPECT_EQ(health.ailment, Ailment::none) << compute;
    EXPECT_EQ(describe(health).size(), 1U);
    EXPECT_THAT(describe(health)[0], StartsWith("well: 2 of 2 steps applied")) << compute;
  }
}

TEST_F(RunHealthTest, AStepThatFailsIsExplained) {
  const RunConfig run =
      config({{"precision.compute", "fp16"}, {"optim.lr", "10"}, {"optim.warmup", "0"}});
  const RunHealth health = examine_run(run, {.steps = 4});
  EXPECT_EQ(health.ailment, Ailment::nonfinite);
  ASSERT_TRUE(health.failed);
  EXPECT_EQ(health.failed->step, health.steps + 1);
  EXPECT_THAT(describe(health),
              ElementsAre(AllOf(StartsWith("step 2 fails: inf from aten::mm within"),
                                HasSubstr("in fp16 (blocks.0."), HasSubstr(", whose self reaches "),
                                HasSubstr("the loss is not finite, which no loss scale changes"))));
}

// The mean over 4 * 32 targets of a loss that is scaled by 2^-20: gradients below 2^-25 are 0 in
// FP16.
TEST_F(RunHealthTest, GradientsThatDieByUnderflowAreNamedWithTheScale) {
  const RunConfig run =
      config({{"precision.compute", "fp16"}, {"scale.kind", "static"}, {"scale.initial", "1e-6"}});
  const RunHealth health = examine_run(run);
  EXPECT_EQ(health.ailment, Ailment::dead_gradients);
  EXPECT_THAT(describe(health),
              ::testing::Contains(AllOf(StartsWith("dead by underflow: "),
                                        HasSubstr(" % of the gradient of blocks.0.mlp.up is 0 at "
                                                  "loss scale 1e-06"))));
}

TEST_F(RunHealthTest, UpdatesThatAreLostAreNamed) {
  const RunConfig run = config({{"precision.compute", "bf16"},
                                {"precision.param", "bf16"},
                                {"optim.masters", "none"},
                                {"optim.lr", "1e-6"}});
  const RunHealth health = examine_run(run, {.steps = 2});
  EXPECT_EQ(health.ailment, Ailment::lost_updates);
  EXPECT_THAT(describe(health), ElementsAre(StartsWith("updates lost: ")));
}

}  // namespace
}  // namespace mantissa::train
