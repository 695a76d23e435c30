#include "mantissa/train/evaluate.h"

#include <cmath>
#include <numbers>
#include <utility>

#include "mantissa/train/assembly.h"
#include "mantissa/train/tiny_run_test.h"

namespace mantissa::train {
namespace {

using EvaluateTest = TinyRunTest;

TEST_F(EvaluateTest, ScoresEachBaseOnceWhateverTheBatch) {
  const RunConfig run = config();
  const RunData data = open_data(run);
  Learner learner(run);
  const EvaluationResult one = evaluate(learner.parts(), data.validation, {.batch = 1});
  const EvaluationResult many = evaluate(learner.parts(), data.validation, {.batch = 7});
  // 850 bases held out; the first has nothing before it.
  EXPECT_EQ(one.num_targets, 849);
  EXPECT_EQ(many.num_targets, 849);
  // Means of up to 224 FP32 terms: gamma_224 = 224 * 2^-24.
  EXPECT_NEAR(one.loss, many.loss, 224 * 0x1p-24 * one.loss);
  EXPECT_DOUBLE_EQ(one.bits_per_base, one.loss / std::numbers::ln2);
}

TEST_F(EvaluateTest, DropsNothing) {
  RunConfig run = config();
  const RunData data = open_data(run);
  const auto losses = [&](double dropout) {
    run.model.dropout = dropout;
    Learner learner(run);
    const data::Batch batch = make_loader(run, data)->next();
    return std::pair(evaluate(learner.parts(), data.validation, {}).loss,
                     forward_loss(learner.parts(), batch).item<double>());
  };
  const auto [without, trained_without] = losses(0);
  const auto [with, trained_with] = losses(0.5);
  EXPECT_EQ(with, without);
  EXPECT_NE(trained_with, trained_without);
}

TEST_F(EvaluateTest, LeavesNoGradientsBehind) {
  const RunConfig run = config();
  const RunData data = open_data(run);
  Learner learner(run);
  evaluate(learner.parts(), data.validation, {});
  for (const tensor::Parameter& parameter : learner.model().parameters()) {
    EXPECT_FALSE(parameter.value.grad().defined()) << parameter.name;
  }
}

TEST_F(EvaluateTest, LooksAtTheAverageOfTheWeightsWhenThereIsOneAndLeavesTheWeights) {
  const RunConfig run = config({{"optim.ema", "0.9"}});
  const RunData data = open_data(run);
  Learner learner(run);
  const auto loader = make_loader(run, data);
  for (int step = 0; step < 3; ++step) {
    training_step(learner.parts(), {loader->next()}, 1e-2);
  }
  StepParts plain = learner.parts();
  plain.ema = nullptr;
  const double trained = evaluate(plain, data.validation, {}).loss;
  const double average = evaluate(learner.parts(), data.validation, {}).loss;
  EXPECT_NE(average, trained);
  EXPECT_EQ(evaluate(plain, data.validation, {}).loss, trained);
  const optim::EmaGuard averaged(*learner.ema());
  EXPECT_EQ(evaluate(plain, data.validation, {}).loss, average);
}

TEST_F(EvaluateTest, LooksAtASpreadOfWindowsWhenAsked) {
  const RunConfig run = config();
  const RunData data = open_data(run);
  Learner learner(run);
  const EvaluationResult some =
      evaluate(learner.parts(), data.validation, {.batch = 2, .windows = 6});
  EXPECT_EQ(some.num_targets, 6 * 32);
}

}  // namespace
}  // namespace mantissa::train
