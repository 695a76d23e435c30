#include "mantissa/report/progress_line.h"

#include <cmath>
#include <string>

#include <gtest/gtest.h>

namespace mantissa::report {
namespace {

TEST(ProgressLine, SaysAllThatAWatcherAsksFor) {
  record::Step step{};
  step.step = 12;
  step.bits_per_base = 1.9876;
  step.tokens_per_s = 12345;
  step.grad_norm = 0.5;
  step.scale = 32768;
  step.peak_bytes = 48200000;
  const ProgressContext context{
      .total_steps = 400, .skipped = 2, .seconds_left = 95, .data_wait_s = 0.0021};
  EXPECT_EQ(progress_line(step, context),
            "step 12/400  left 1m35s  1.9876 bits/base  12.3k tokens/s  |g| 0.500  scale 2^15  "
            "skipped 2  peak 48.2 MB  data wait 2.10 ms");
}

TEST(ProgressLine, ANormThatIsNoNumberHasNoSign) {
  record::Step step{};
  step.grad_norm = -std::nan("");
  EXPECT_NE(progress_line(step, {}).find("|g| nan  scale"), std::string::npos);
}

TEST(ProgressLine, EvaluationHasStepAndBits) {
  record::Evaluation evaluation{};
  evaluation.step = 200;
  evaluation.bits_per_base = 1.93149;
  EXPECT_EQ(evaluation_line(evaluation), "validation  step 200  1.9315 bits/base");
}

}  // namespace
}  // namespace mantissa::report
