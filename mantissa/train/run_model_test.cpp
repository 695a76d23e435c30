#include "mantissa/train/run_model.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/randint.h>
#include <gmock/gmock.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/train/tiny_run_test.h"

namespace mantissa::train {
namespace {

using numerics::Format;
using ::testing::HasSubstr;

class RunModelTest : public TinyRunTest {
 protected:
  // After some steps, so that averages and masters differ from the weights.
  static tensor::StateDict trained(const RunConfig& run) {
    Learner learner(run);
    const RunData data = open_data(run);
    const auto loader = make_loader(run, data);
    for (int step = 0; step < 3; ++step) {
      training_step(learner.parts(), {loader->next()}, 1e-2);
    }
    tensor::StateDict state;
    state.merge("learner", learner.state_dict());
    return state;
  }

  const at::Tensor tokens_ = at::randint(7, 11, {2, 32}, at::kLong);
};

TEST_F(RunModelTest, IsTheNetworkOfTheState) {
  const RunConfig run = config();
  const tensor::StateDict state = trained(run);
  Learner learner(run);
  learner.load_state_dict(state.under("learner"));
  const at::NoGradGuard no_grad;
  const at::Tensor logits = learner.model().forward(tokens_, models::Mode::evaluation);
  const at::Tensor found = RunModel(run, state).log_probabilities(tokens_);
  EXPECT_EQ(found.scalar_type(), at::kDouble);
  EXPECT_TRUE(at::equal(found, at::log_softmax(logits.to(at::kDouble), -1)));
}

TEST_F(RunModelTest, HasTheAverageOfTheWeightsWhenThereIsOne) {
  const RunConfig run = config({{"optim.ema", "0.9"}});
  const tensor::StateDict state = trained(run);
  Learner learner(run);
  learner.load_state_dict(state.under("learner"));
  const at::NoGradGuard no_grad;
  const at::Tensor of_weights = learner.model().forward(tokens_, models::Mode::evaluation);
  const optim::EmaGuard averaged(*learner.ema());
  const at::Tensor of_average = learner.model().forward(tokens_, models::Mode::evaluation);
  ASSERT_FALSE(at::equal(of_weights, of_average));
  const at::Tensor expected = at::log_softmax(of_average.to(at::kDouble), -1);
  EXPECT_TRUE(at::equal(RunModel(run, state).log_probabilities(tokens_), expected));
  // Also in a precision that is not the run's own.
  const RunConfig bf16 = config({{"optim.ema", "0.9"}, {"precision.compute", "bf16"}});
  EXPECT_TRUE(at::equal(RunModel(bf16, state, Format::fp32).log_probabilities(tokens_), expected));
}

TEST_F(RunModelTest, ComputesInAnotherPrecision) {
  const RunConfig run = config();
  const tensor::StateDict state = trained(run);
  const RunModel fp32(run, state);
  const RunModel bf16(run, state, Format::bf16);
  EXPECT_EQ(fp32.precision(), Format::fp32);
  EXPECT_EQ(bf16.precision(), Format::bf16);
  EXPECT_EQ(fp32.fingerprint(), bf16.fingerprint());  // weights stay FP32
  EXPECT_FALSE(at::equal(fp32.log_probabilities(tokens_), bf16.log_probabilities(tokens_)));
  // As the run with that precision computes.
  const RunConfig of_bf16 = config({{"precision.compute", "bf16"}});
  EXPECT_TRUE(at::equal(RunModel(of_bf16, state).log_probabilities(tokens_),
                        bf16.log_probabilities(tokens_)));
}

TEST_F(RunModelTest, SixteenBitParametersAreWidenedAsTheyAre) {
  const RunConfig run = config({{"precision.compute", "bf16"}, {"precision.param", "bf16"}});
  const tensor::StateDict state = trained(run);
  Learner learner(run);
  learner.load_state_dict(state.under("learner"));
  Learner wide(config());
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < wide.model().parameters().size(); ++i) {
    wide.model().parameters()[i].value.copy_(learner.model().parameters()[i].value);
  }
  const at::Tensor logits = wide.model().forward(tokens_, models::Mode::evaluation);
  EXPECT_TRUE(at::equal(RunModel(run, state, Format::fp32).log_probabilities(tokens_),
                        at::log_softmax(logits.to(at::kDouble), -1)));
  EXPECT_EQ(message_of<InvalidArgument>([&] { RunModel(run, state, Format::fp16); }),
            "precision fp16: the parameters of this run are bf16; choose that or fp32");
}

TEST_F(RunModelTest, RefusesAPrecisionThatThePolicyWouldIgnore) {
  const RunConfig run = config({{"precision.policy", "fp32"}});
  EXPECT_THAT(message_of<InvalidArgument>([&] { RunModel(run, trained(run), Format::bf16); }),
              HasSubstr("has everything in FP32; leave the precision out"));
}

TEST_F(RunModelTest, OtherWeightsHaveAnotherFingerprint) {
  const RunConfig run = config();
  Learner begun(run);
  tensor::StateDict first;
  first.merge("learner", begun.state_dict());
  EXPECT_NE(RunModel(run, first).fingerprint(), RunModel(run, trained(run)).fingerprint());
  EXPECT_EQ(RunModel(run, first).fingerprint(), RunModel(run, first).fingerprint());
}

}  // namespace
}  // namespace mantissa::train
