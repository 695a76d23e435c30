#include "mantissa/train/why_run.h"

#include <gmock/gmock.h>

#include "mantissa/base/error.h"
#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/train/tiny_run_test.h"

namespace mantissa::train {
namespace {

class TimePairTest : public TinyRunTest {
 protected:
  static void SetUpTestSuite() { ops::install_cpu_kernels(); }
};

bool is_product_of_pass(const record::OperationRow& row) {
  return row.kind == "product" && (row.phase == "forward" || row.phase == "backward");
}

double flops_of(const record::TimeSplit& split) {
  double flops = 0;
  for (const record::OperationRow& row : split.operations) {
    flops += is_product_of_pass(row) ? row.flops : 0;
  }
  return flops;
}

TEST_F(TimePairTest, BothDoTheSameWorkInTheirFormats) {
  const TimedPair pair = time_pair(config(), config({{"precision.compute", "bf16"}}), 12);
  for (const TimedSteps* steps : {&pair.first, &pair.second}) {
    ASSERT_EQ(steps->rounds.size(), static_cast<size_t>(kTimingRounds));
    for (const std::vector<double>& round : steps->rounds) {
      EXPECT_EQ(round.size(), 2U);
    }
    EXPECT_GT(steps->phases.at("backward"), 0);
    EXPECT_GE(steps->split.step, 6 * 3 + 2) << "each turn has a step that is not timed";
    EXPECT_LE(steps->split.step, 6 * 3 + 6);
    for (const record::OperationRow& row : steps->split.operations) {
      if (is_product_of_pass(row)) {
        EXPECT_EQ(row.format, steps->config.precision.compute) << row.operation;
        EXPECT_TRUE(row.eligible);
      }
    }
  }
  EXPECT_GT(flops_of(pair.first.split), 0);
  EXPECT_EQ(flops_of(pair.first.split), flops_of(pair.second.split));
  EXPECT_EQ(pair.first.split.phases.at("casts"), 0);
  EXPECT_GT(pair.second.split.phases.at("casts"), 0);
}

TEST_F(TimePairTest, StepsThatALossScaleSkipsAreNotTimed) {
  const TimedPair pair =
      time_pair(config(), config({{"precision.compute", "fp16"}, {"scale.initial", "1e9"}}), 6);
  EXPECT_GE(pair.second.split.step, 6 * 2 + 2) << "applied ones";
  EXPECT_LE(pair.second.split.step, 6 * 2 + 6);
}

TEST_F(TimePairTest, ARunThatSkipsForEverIsRefused) {
  const RunConfig broken =
      config({{"precision.compute", "fp16"}, {"scale.initial", "1e30"}, {"scale.backoff", "0.99"}});
  try {
    (void)time_pair(config(), broken, 6);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("steps in a row in fp16 were skipped"));
  }
}

TEST_F(TimePairTest, StepsAreInEqualParts) {
  EXPECT_THROW((void)time_pair(config(), config(), 7), InvalidArgument);
  EXPECT_THROW((void)time_pair(config(), config(), 0), InvalidArgument);
}

}  // namespace
}  // namespace mantissa::train
