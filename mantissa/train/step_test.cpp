#include "mantissa/train/step.h"

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>

#include "mantissa/base/error.h"
#include "mantissa/data/tokenizer.h"
#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/tensor/memory.h"
#include "mantissa/train/assembly.h"
#include "mantissa/train/tiny_run_test.h"

namespace mantissa::train {
namespace {

class StepTest : public TinyRunTest {
 protected:
  static void SetUpTestSuite() { ops::install_cpu_kernels(); }

  static std::vector<at::Tensor> weights(const Learner& learner) {
    std::vector<at::Tensor> copies;
    for (const tensor::Parameter& parameter : learner.model().parameters()) {
      copies.push_back(parameter.value.detach().clone());
    }
    return copies;
  }

  static bool equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
    for (size_t i = 0; i < a.size(); ++i) {
      if (!at::equal(a[i], b[i])) {
        return false;
      }
    }
    return a.size() == b.size();
  }
};

TEST_F(StepTest, ChangesWeightsAndReportsFiniteNumbers) {
  const RunConfig run = config();
  const RunData data = open_data(run);
  Learner learner(run);
  const auto loader = make_loader(run, data);
  const auto before = weights(learner);
  const StepReport report = training_step(learner.parts(), {loader->next()}, 1e-2);
  EXPECT_EQ(report.outcome, optim::StepOutcome::applied);
  // Sixteen logits of variance one: E log sum exp is ln 16 + 1/2, with a spread of the same size
  // for so few weights.
  EXPECT_NEAR(report.loss, std::log(16.0) + 0.5, 0.5);
  EXPECT_GT(report.grad_norm, 0);
  EXPECT_FALSE(equal(before, weights(learner)));
}

// A power of two changes exponents alone.
TEST_F(StepTest, TheWeightOfTheLossIsInGradientsAndNotInTheReport) {
  const auto step = [&](const char* weight) {
    const RunConfig run = config({{"train.loss_weight", weight}, {"train.microbatch", "2"}});
    const RunData data = open_data(run);
    Learner learner(run);
    const auto loader = make_loader(run, data);
    return training_step(learner.parts(), {loader->next(), loader->next()}, 1e-2);
  };
  const StepReport plain = step("1");
  const StepReport weighted = step("1024");
  EXPECT_EQ(weighted.loss, plain.loss);
  EXPECT_EQ(weighted.grad_norm, 1024 * plain.grad_norm);
}

// Those of activations pass 2^-24 in FP16; FP32 and a loss scale keep them.
TEST_F(StepTest, ASmallWeightOfTheLossLosesGradientsInFp16AndAScaleKeepsThem) {
  const auto zeros = [&](const std::vector<Setting>& settings) {
    std::vector<Setting> all = {{"train.loss_weight", "1e-6"}};
    all.insert(all.end(), settings.begin(), settings.end());
    const RunConfig run = config(all);
    const RunData data = open_data(run);
    Learner learner(run);
    StepParts parts = learner.parts();
    parts.gradient_statistics = true;
    const StepReport report = training_step(parts, {make_loader(run, data)->next()}, 1e-2);
    for (const optim::NamedGradientStatistics& gradient : report.gradients) {
      if (gradient.parameter == "blocks.0.mlp.up.weight") {
        return static_cast<double>(gradient.statistics.zeros) /
               static_cast<double>(gradient.statistics.count);
      }
    }
    return -1.0;
  };
  EXPECT_EQ(zeros({}), 0);
  EXPECT_EQ(zeros({{"precision.compute", "bf16"}}), 0);
  EXPECT_EQ(zeros({{"precision.compute", "fp16"}, {"scale.kind", "none"}}), 1);
  EXPECT_EQ(zeros({{"precision.compute", "fp16"}}), 0);
}

TEST_F(StepTest, ASkippedStepChangesNothingButTheScale) {
  const RunConfig run = config({{"precision.compute", "fp16"},
                                {"scale.initial", "1e30"},
                                {"optim.moments", "blockwise8"},
                                {"optim.ema", "0.9"}});
  const RunData data = open_data(run);
  Learner learner(run);
  const auto loader = make_loader(run, data);
  const auto before = weights(learner);
  const double lr = learner.lr();
  const tensor::StateDict optimizer = learner.optimizer().state_dict();
  const StepReport report = training_step(learner.parts(), {loader->next()}, lr);
  EXPECT_EQ(report.outcome, optim::StepOutcome::skipped);
  ASSERT_TRUE(report.skip);
  EXPECT_EQ(report.skip->reason.cause, monitor::SkipCause::scale);
  EXPECT_TRUE(report.skip->reason.origin.in_backward);
  EXPECT_FALSE(report.skip->reason.parameter.empty());
  EXPECT_TRUE(equal(before, weights(learner)));
  EXPECT_EQ(learner.optimizer().steps(), 0);
  EXPECT_EQ(learner.ema()->updates(), 0);
  EXPECT_EQ(learner.lr(), lr);
  const tensor::StateDict after = learner.optimizer().state_dict();
  for (const auto& [name, moment] : after.tensors()) {
    EXPECT_TRUE(at::equal(moment, optimizer.tensor(name))) << name;
  }
  EXPECT_EQ(learner.scaler().value().item<float>(), 0.5e30F);
}

// Weights beyond 65504 overflow in FP16 before the loss does: a smaller scale would not help.
TEST_F(StepTest, AForwardOverflowIsNamedAndLeavesTheScale) {
  for (const bool explain : {true, false}) {
    RunConfig run = config({{"precision.compute", "fp16"}});
    run.train.explain_skips = explain;
    const RunData data = open_data(run);
    Learner learner(run);
    for (const tensor::Parameter& parameter : learner.model().parameters()) {
      if (parameter.name == "blocks.0.mlp.up.weight") {
        parameter.value.detach().fill_(1e5);
      }
    }
    const StepReport report =
        training_step(learner.parts(), {make_loader(run, data)->next()}, 1e-2);
    EXPECT_EQ(report.outcome, optim::StepOutcome::skipped);
    EXPECT_FALSE(std::isfinite(report.loss));
    EXPECT_EQ(learner.scaler().value().item<float>(), 65536);
    EXPECT_EQ(learner.scaler().skipped_in_row().item<int64_t>(), 1);
    ASSERT_EQ(report.skip.has_value(), explain);
    if (explain) {
      EXPECT_EQ(report.skip->reason.cause, monitor::SkipCause::forward);
      EXPECT_EQ(report.skip->reason.origin.operation, "aten::copy_");
      EXPECT_EQ(report.skip->reason.origin.scope, "blocks.0.mlp");
    }
  }
}

const char* const kLevels[] = {"none", "elementwise", "block", "full"};

// Three steps in two microbatches each: losses, norms and weights of each level are those of none.
TEST_F(StepTest, RecomputationChangesNoBit) {
  const std::vector<std::vector<Setting>> runs = {
      {},
      {{"precision.compute", "tf32"}},
      {{"precision.compute", "bf16"}},
      {{"precision.compute", "bf16"}, {"precision.policy", "lean"}},
      {{"precision.compute", "bf16"}, {"precision.param", "bf16"}},
      {{"precision.compute", "bf16"}, {"precision.policy", "torch scope:blocks.1.mlp=fp32"}},
      {{"precision.compute", "fp16"}, {"scale.initial", "1024"}, {"data.objective", "masked"}},
  };
  for (const std::vector<Setting>& settings : runs) {
    std::vector<at::Tensor> expected;
    std::vector<double> expected_numbers;
    for (const char* level : kLevels) {
      SCOPED_TRACE(testing::Message()
                   << level << (settings.empty() ? "" : " " + settings.back().value));
      RunConfig run = config(settings);
      run.model.layers = 3;
      run.train.recompute = level;
      run.train.microbatch = run.train.batch / 2;
      const RunData data = open_data(run);
      Learner learner(run);
      const auto loader = make_loader(run, data);
      std::vector<double> numbers;
      for (int step = 0; step < 3; ++step) {
        const StepReport report =
            training_step(learner.parts(), next_microbatches(run, *loader), learner.lr());
        numbers.insert(numbers.end(), {report.loss, report.grad_norm, report.scale});
      }
      if (expected.empty()) {
        expected = weights(learner);
        expected_numbers = numbers;
      }
      EXPECT_EQ(numbers, expected_numbers);
      EXPECT_TRUE(equal(weights(learner), expected));
    }
  }
}

TEST_F(StepTest, EachLevelOfRecomputationKeepsLessThanTheOneBefore) {
  tensor::memory::install_counting_allocator();
  for (const char* compute : {"fp32", "bf16"}) {
    for (const char* policy : {"torch-fixed", "lean"}) {
      int64_t before = std::numeric_limits<int64_t>::max();
      for (const char* level : kLevels) {
        RunConfig run = config({{"precision.compute", compute}, {"precision.policy", policy}});
        run.model.layers = 4;
        run.train.recompute = level;
        Learner learner(run);
        const auto loader = make_loader(run, open_data(run));
        const data::Batch batch = loader->next();
        const int64_t without = tensor::memory::live_bytes().total();
        const at::Tensor loss = forward_loss(learner.parts(), batch);
        const int64_t kept = tensor::memory::live_bytes().total() - without;
        EXPECT_LT(kept, before) << compute << " " << policy << " " << level;
        before = kept;
      }
    }
  }
}

// What the second call of a block computes is found where it first went wrong.
TEST_F(StepTest, AnOverflowIsNamedAlikeWithRecomputation) {
  for (const char* level : kLevels) {
    RunConfig run = config({{"precision.compute", "fp16"}});
    run.train.recompute = level;
    const RunData data = open_data(run);
    Learner learner(run);
    for (const tensor::Parameter& parameter : learner.model().parameters()) {
      if (parameter.name == "blocks.0.mlp.up.weight") {
        parameter.value.detach().fill_(1e5);
      }
    }
    const StepReport report =
        training_step(learner.parts(), {make_loader(run, data)->next()}, 1e-2);
    ASSERT_TRUE(report.skip) << level;
    EXPECT_EQ(report.skip->reason.cause, monitor::SkipCause::forward);
    EXPECT_EQ(report.skip->reason.origin.operation, "aten::copy_");
    EXPECT_EQ(report.skip->reason.origin.scope, "blocks.0.mlp");
  }
}

TEST_F(StepTest, AGradientThatOverflowsIsNamedAlikeWithRecomputation) {
  std::optional<monitor::SkipReason> expected;
  for (const char* level : kLevels) {
    RunConfig run = config({{"precision.compute", "fp16"}, {"scale.initial", "1e30"}});
    run.train.recompute = level;
    const RunData data = open_data(run);
    Learner learner(run);
    const StepReport report =
        training_step(learner.parts(), {make_loader(run, data)->next()}, 1e-2);
    ASSERT_TRUE(report.skip) << level;
    if (!expected) {
      expected = report.skip->reason;
    }
    EXPECT_EQ(monitor::describe(report.skip->reason), monitor::describe(*expected)) << level;
  }
}

// The same sums in another order. FP32: chains of a few hundred terms, gamma_n < 2^-15 of the sum
// of magnitudes. BF16: every product of the backward pass is rounded once, in other groups: 2^-8 a
// term.
TEST_F(StepTest, MicrobatchesGiveTheStepOfTheWholeBatch) {
  for (const char* compute : {"fp32", "bf16"}) {
    const bool narrow = std::string(compute) == "bf16";
    RunConfig run = config();
    run.optim.kind = "sgd";
    run.optim.schedule = "constant";
    run.optim.clip = 0;
    run.precision.compute = compute;
    run.precision.param = narrow ? "bf16" : "fp32";
    const RunData data = open_data(run);
    Learner whole(run);
    Learner parts(run);
    const data::Batch batch = make_loader(run, data)->next();
    run.train.microbatch = 1;
    const auto loader = make_loader(run, data);
    std::vector<data::Batch> microbatches;
    microbatches.reserve(4);
    for (int i = 0; i < 4; ++i) {
      microbatches.push_back(loader->next());
    }
    const StepReport a = training_step(whole.parts(), {batch}, 1e-2);
    const StepReport b = training_step(parts.parts(), microbatches, 1e-2);
    const double relative = narrow ? 0x1p-6 : 0x1p-15;
    EXPECT_NEAR(a.loss, b.loss, relative * a.loss) << compute;
    EXPECT_NEAR(a.grad_norm, b.grad_norm, relative * a.grad_norm) << compute;
  }
}

TEST_F(StepTest, RefusesMicrobatchesWithoutAnyTarget) {
  const RunConfig run = config();
  const RunData data = open_data(run);
  Learner learner(run);
  data::Batch batch = make_loader(run, data)->next();
  batch.targets = at::full_like(batch.targets, data::kIgnore);
  EXPECT_THROW((void)training_step(learner.parts(), {batch}, 1e-2), InvalidArgument);
}

// A row of the table gets thousands of equal gradients: summed in BF16 they stop at 256 times one.
TEST_F(StepTest, EmbeddingGradientsOf16BitParametersAreSummedInFp32) {
  RunConfig run = config({{"precision.compute", "bf16"}, {"precision.param", "bf16"}});
  Learner narrow(run);
  run.precision = {};
  Learner wide(run);
  data::Batch batch;
  batch.tokens = at::full({4, 1000}, 7, at::kLong);
  batch.targets = at::full({4, 1000}, 8, at::kLong);
  const auto gradient_norm = [&](Learner& learner) {
    forward_loss(learner.parts(), batch).backward();
    return learner.model().parameters()[0].value.grad()[7].to(at::kFloat).norm().item<double>();
  };
  // Weights, activations and the gradient itself carry 2^-8 each, through a dozen operations; a
  // stopped sum would be off by a factor of ten.
  EXPECT_NEAR(gradient_norm(narrow) / gradient_norm(wide), 1, 0.1);
}

}  // namespace
}  // namespace mantissa::train
