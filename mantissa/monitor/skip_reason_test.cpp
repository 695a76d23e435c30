#include "mantissa/monitor/skip_reason.h"

#include <limits>

#include <ATen/ops/dropout.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/tensor/scope.h"

namespace mantissa::monitor {
namespace {

// One FP32 weight whose product is FP16: the gradient passes through FP16, at most 65504.
struct Model {
  tensor::ParameterList parameters = {{"w", at::ones({1, 1}).requires_grad_()}};
  float input = 1;
  float factor = 1;  // of the loss: that of its gradient

  at::Tensor loss() const {
    const tensor::Scope scope("head");
    const at::Tensor x = at::full({1, 1}, input).to(at::kHalf);
    const at::Tensor w = parameters[0].value.to(at::kHalf);
    return at::mm(x, w).to(at::kFloat).mul(factor).sum();
  }

  SkipReason reason(double scale) const {
    return find_skip_reason(ReplayPoint(), parameters, scale, [this] { return loss(); });
  }
};

TEST(SkipReason, ALossThatIsNotFiniteIsTheModels) {
  const Model model{.input = 70000};
  const SkipReason reason = model.reason(65536);
  EXPECT_EQ(reason.cause, SkipCause::forward);
  EXPECT_EQ(reason.origin.operation, "aten::copy_");
  EXPECT_EQ(reason.origin.scope, "head");
  EXPECT_TRUE(is_model_fault(reason.cause));
  EXPECT_EQ(
      describe(reason),
      "inf from aten::copy_ within aten::to in fp16 (head), whose src is 70000, from aten::full "
      "(head); the loss is not finite, which no loss scale changes");
}

TEST(SkipReason, AnOverflowAtTheScaleOnlyIsTheScales) {
  const Model model{.factor = 4};
  const SkipReason reason = model.reason(32768);  // 2^17 in FP16
  EXPECT_EQ(reason.cause, SkipCause::scale);
  EXPECT_EQ(reason.parameter, "w");
  EXPECT_TRUE(reason.origin.in_backward);
  EXPECT_FALSE(is_model_fault(reason.cause));
}

TEST(SkipReason, AnOverflowAtScaleOneTooIsOfTheBackwardPass) {
  const Model model{.factor = 1e6};
  const SkipReason reason = model.reason(1024);
  EXPECT_EQ(reason.cause, SkipCause::backward);
  EXPECT_EQ(reason.parameter, "w");
  EXPECT_EQ(reason.origin.scope, "head");
  EXPECT_TRUE(is_model_fault(reason.cause));
}

TEST(SkipReason, AFiniteReplaySaysSo) {
  EXPECT_EQ(Model().reason(1).cause, SkipCause::unseen);
  EXPECT_EQ(Model().reason(2).cause, SkipCause::unseen);
}

TEST(SkipReason, AStepCanBeAskedWhetherItIsFinite) {
  const auto is_finite = [](const Model& model, double scale) {
    return is_finite_step(ReplayPoint(), model.parameters, scale, [&] { return model.loss(); });
  };
  EXPECT_FALSE(is_finite({.input = 70000}, 1));
  EXPECT_TRUE(is_finite({.factor = 4}, 1));
  EXPECT_FALSE(is_finite({.factor = 4}, 32768));
}

TEST(SkipReason, LeavesGradientsAndGeneratorAsTheyWere) {
  const Model model;
  const at::Tensor gradient = at::full({1, 1}, 7.0F);
  model.parameters[0].value.mutable_grad() = gradient;
  const ReplayPoint before;
  at::Tensor expected;
  {
    const ReplayPoint::Guard guard(before);
    expected = at::rand({3});
  }
  (void)find_skip_reason(before, model.parameters, 8, [&] {
    (void)at::rand({100});
    return model.loss();
  });
  EXPECT_TRUE(model.parameters[0].value.grad().is_same(gradient));
  EXPECT_EQ(gradient.item<float>(), 7);
  EXPECT_TRUE(at::equal(at::rand({3}), expected));
}

TEST(SkipReason, RefusesWhatNoStepHas) {
  const Model model;
  for (const double scale : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THROW((void)model.reason(scale), InvalidArgument) << scale;
  }
  const auto of = [&](const at::Tensor& loss) {
    return find_skip_reason(ReplayPoint(), model.parameters, 1, [&] { return loss; });
  };
  EXPECT_THROW((void)of(at::Tensor()), InvalidArgument);
  EXPECT_THROW((void)of(at::ones({1})), InvalidArgument);
  EXPECT_THROW((void)of(at::ones({2}).requires_grad_()), InvalidArgument);
}

TEST(SkipReason, TheReplayDropsWhatTheStepDropped) {
  const ReplayPoint point;
  const at::Tensor first = at::dropout(at::ones({64}), 0.5, true);
  at::Tensor second;
  (void)find_skip_reason(point, {}, 1, [&] {
    second = at::dropout(at::ones({64}).requires_grad_(), 0.5, true);
    return second.sum();
  });
  EXPECT_TRUE(at::equal(first, second));
}

}  // namespace
}  // namespace mantissa::monitor
