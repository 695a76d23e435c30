#include "mantissa/amp/grad_scaler.h"

#include <cmath>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"

namespace mantissa::amp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

static_assert(!std::is_copy_constructible_v<GradScaler>);
static_assert(std::is_move_constructible_v<GradScaler>);

// A user's own optimizer: weight -= gradient.
struct Sgd {
  std::vector<at::Tensor> weights;
  int steps = 0;

  const std::vector<at::Tensor>& parameters() const { return weights; }

  void step() {
    ++steps;
    for (const at::Tensor& weight : weights) {
      if (weight.grad().defined()) {
        weight.detach().sub_(weight.grad());
      }
    }
  }
};

// One with groups, as those of torch::optim.
struct Group {
  std::vector<at::Tensor> tensors;
  const std::vector<at::Tensor>& params() const { return tensors; }
};

struct GroupedSgd {
  std::vector<Group> groups;
  const std::vector<Group>& param_groups() const { return groups; }
  const std::vector<at::Tensor>& parameters() const { return groups.front().tensors; }
  void step() {}
};

// mantissa::optim::Optimizer unscales by itself, and its step() takes options.
struct TakesOptions {
  std::vector<at::Tensor> parameters() const { return {}; }
  void step(double /*lr*/) {}
};

static_assert(SteppableOptimizer<Sgd>);
static_assert(SteppableOptimizer<GroupedSgd>);
static_assert(!SteppableOptimizer<TakesOptions>);

at::Tensor weight(float value) { return at::full({1}, value).requires_grad_(); }

// A parameter at 10 whose loss is `slope` times itself.
at::Tensor weight() { return weight(10); }
void backward(GradScaler& scaler, const at::Tensor& weight, float slope) {
  scaler.scale(weight.mul(slope).sum()).backward();
}

at::Tensor with_gradient(const at::Tensor& gradient) {
  at::Tensor parameter = at::zeros(gradient.sizes(), gradient.options().layout(at::kStrided));
  parameter.requires_grad_();
  parameter.mutable_grad() = gradient;
  return parameter;
}

// A sparse gradient with each of `values` as an entry of its own at index 0.
at::Tensor duplicates(const at::Tensor& values) {
  return at::_sparse_coo_tensor_unsafe(at::zeros({1, values.size(0)}, at::kLong), values, {2});
}

float value(const at::Tensor& tensor) { return tensor.item<float>(); }

// A whole iteration of one weight; the scale after it.
float iterate(GradScaler& scaler, bool finite) {
  Sgd optimizer{{weight()}};
  backward(scaler, optimizer.weights[0], finite ? 1.0F : kInf);
  EXPECT_EQ(scaler.step(optimizer), finite ? StepOutcome::applied : StepOutcome::skipped);
  scaler.update();
  return scaler.get_scale();
}

int64_t tracker(const GradScaler& scaler) { return scaler.state_dict().integer("_growth_tracker"); }

// --- The numbers of torch ---

TEST(GradScaler, DefaultsAreThoseOfTorch) {
  GradScaler scaler(at::kCPU);
  EXPECT_EQ(scaler.get_scale(), 65536);
  for (int i = 0; i < 1999; ++i) {
    ASSERT_EQ(iterate(scaler, true), 65536);
  }
  EXPECT_EQ(iterate(scaler, true), 131072);
  EXPECT_EQ(iterate(scaler, false), 65536);
}

// Growth x4 after 3 finite steps in a row, backoff x0.5 and a new count: written out by hand.
TEST(GradScaler, TheScaleMovesAsInTorch) {
  GradScaler scaler(at::kCPU, {.init_scale = 8, .growth_factor = 4, .growth_interval = 3});
  std::vector<float> scales;
  for (const char step : std::string("...x..x....")) {
    scales.push_back(iterate(scaler, step == '.'));
  }
  EXPECT_THAT(scales, ElementsAre(8, 8, 32, 16, 16, 16, 8, 8, 8, 32, 32));
  EXPECT_EQ(tracker(scaler), 1);
}

TEST(GradScaler, RefusesOptionsThatTorchWouldTake) {
  const auto refusal = [](const GradScalerOptions& options) {
    return message_of<InvalidArgument>([&] { const GradScaler scaler(at::kCPU, options); });
  };
  EXPECT_EQ(refusal({.init_scale = 0}),
            "loss scaler: initial is 0; valid: a finite normal FP32 number above 0");
  EXPECT_THAT(refusal({.init_scale = kInf}), HasSubstr("initial is inf"));
  EXPECT_THAT(refusal({.init_scale = kNan}), HasSubstr("initial is nan"));
  EXPECT_THAT(refusal({.init_scale = -1}), HasSubstr("initial is -1"));
  EXPECT_THAT(refusal({.growth_factor = 1}), HasSubstr("growth is 1"));
  EXPECT_THAT(refusal({.backoff_factor = 1}), HasSubstr("backoff is 1"));
  EXPECT_THAT(refusal({.backoff_factor = 0}), HasSubstr("backoff is 0"));
  EXPECT_THAT(refusal({.growth_interval = 0}), HasSubstr("growth_interval is 0"));
}

TEST(GradScaler, ALossOfAnyShapeIsScaledInFp32) {
  GradScaler scaler(at::kCPU);
  const std::vector<at::Tensor> scaled =
      scaler.scale({at::full({2, 2}, 2, at::kHalf), at::full({}, 3, at::kBFloat16)});
  EXPECT_TRUE(at::equal(scaled[0], at::full({2, 2}, 131072.0F)));
  EXPECT_TRUE(at::equal(scaled[1], at::full({}, 196608.0F)));
}

// --- One optimizer ---

TEST(GradScaler, AppliesTheUnscaledGradientAndSaysSo) {
  GradScaler scaler(at::kCPU);
  Sgd optimizer{{weight()}};
  backward(scaler, optimizer.weights[0], 3);
  EXPECT_EQ(value(optimizer.weights[0].grad()), 3 * 65536);
  EXPECT_EQ(scaler.step(optimizer), StepOutcome::applied);
  EXPECT_EQ(value(optimizer.weights[0]), 7);
}

TEST(GradScaler, SkipsWithoutCallingTheOptimizerAndSaysSo) {
  GradScaler scaler(at::kCPU);
  Sgd optimizer{{weight(), weight()}};
  for (const float bad : {kInf, -kInf, kNan}) {
    backward(scaler, optimizer.weights[0], 3);
    backward(scaler, optimizer.weights[1], bad);
    EXPECT_EQ(scaler.step(optimizer), StepOutcome::skipped);
    scaler.update();
    optimizer.weights[1].mutable_grad() = at::Tensor();
  }
  EXPECT_EQ(optimizer.steps, 0);
  EXPECT_EQ(value(optimizer.weights[0]), 10);
  EXPECT_EQ(scaler.get_scale(), 8192);
}

TEST(GradScaler, ClippingAfterUnscaleHoldsForTheStep) {
  GradScaler scaler(at::kCPU);
  Sgd optimizer{{weight()}};
  backward(scaler, optimizer.weights[0], 8);
  scaler.unscale_(optimizer);
  EXPECT_EQ(value(optimizer.weights[0].grad()), 8);
  optimizer.weights[0].grad().mul_(0.125);
  EXPECT_EQ(scaler.step(optimizer), StepOutcome::applied);
  EXPECT_EQ(value(optimizer.weights[0]), 9);
}

TEST(GradScaler, AClippedGradientMayBeANewTensor) {
  GradScaler scaler(at::kCPU);
  Sgd optimizer{{weight()}};
  backward(scaler, optimizer.weights[0], 8);
  scaler.unscale_(optimizer);
  optimizer.weights[0].mutable_grad() = optimizer.weights[0].grad().clamp(-1, 1);
  EXPECT_EQ(scaler.step(optimizer), StepOutcome::applied);
  EXPECT_EQ(value(optimizer.weights[0]), 9);
}

TEST(GradScaler, SeveralBackwardPassesAddUpBeforeTheStep) {
  GradScaler scaler(at::kCPU);
  Sgd optimizer{{weight()}};
  for (const float slope : {1.0F, 2.0F, 0.5F}) {
    backward(scaler, optimizer.weights[0], slope);
  }
  EXPECT_EQ(scaler.step(optimizer), StepOutcome::applied);
  EXPECT_EQ(value(optimizer.weights[0]), 6.5);
}

TEST(GradScaler, UnscalesAllGroups) {
  GradScaler scaler(at::kCPU, {.init_scale = 4});
  GroupedSgd optimizer{
      {{{with_gradient(at::full({1}, 8.0F))}}, {{with_gradient(at::full({1}, 12.0F))}}}};
  EXPECT_EQ(scaler.step(optimizer), StepOutcome::applied);
  EXPECT_EQ(value(optimizer.groups[0].tensors[0].grad()), 2);
  EXPECT_EQ(value(optimizer.groups[1].tensors[0].grad()), 3);
}

TEST(GradScaler, UnscalesFp32Fp64AndBf16Together) {
  GradScaler scaler(at::kCPU, {.init_scale = 4});
  Sgd optimizer;
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kFloat}) {
    optimizer.weights.push_back(with_gradient(at::full({3}, 10, dtype)));
  }
  scaler.unscale_(optimizer);
  for (const at::Tensor& parameter : optimizer.weights) {
    EXPECT_TRUE(at::equal(parameter.grad(), at::full({3}, 2.5, parameter.scalar_type())));
  }
}

TEST(GradScaler, FindsWhatIsNotFiniteInEachDtype) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    GradScaler scaler(at::kCPU);
    Sgd optimizer{{with_gradient(at::ones({2})), with_gradient(at::full({1}, kInf, dtype))}};
    EXPECT_EQ(scaler.step(optimizer), StepOutcome::skipped) << dtype;
  }
}

TEST(GradScaler, ChecksAfterUnscalingToo) {
  GradScaler scaler(at::kCPU, {.init_scale = 0x1p-20F});
  Sgd optimizer{{with_gradient(at::full({1}, 0x1p120F))}};  // 2^140 is beyond FP32
  EXPECT_EQ(scaler.step(optimizer), StepOutcome::skipped);
}

TEST(GradScaler, AParameterThatIsListedTwiceIsUnscaledOnce) {
  GradScaler scaler(at::kCPU, {.init_scale = 4});
  const at::Tensor tied = with_gradient(at::full({1}, 8.0F));
  Sgd optimizer{{tied, tied}};
  scaler.unscale_(optimizer);
  EXPECT_EQ(value(tied.grad()), 2);
}

TEST(GradScaler, RefusesFp16GradientsBeforeItChangesAny) {
  GradScaler scaler(at::kCPU);
  Sgd optimizer{{with_gradient(at::ones({2})), with_gradient(at::ones({2}, at::kHalf))}};
  EXPECT_EQ(message_of<InvalidArgument>([&] { scaler.step(optimizer); }),
            "GradScaler: parameter 1 of the optimizer has an FP16 gradient, and unscaling it would "
            "lose the bits that scaling has saved; keep parameters in FP32, or use "
            "mantissa::optim::Optimizer");
  EXPECT_TRUE(at::equal(optimizer.weights[0].grad(), at::ones({2})));
}

TEST(GradScaler, ARefusalLeavesTheSparseGradientsBeforeIt) {
  GradScaler scaler(at::kCPU);
  const at::Tensor sparse = with_gradient(duplicates(at::ones({2})));
  Sgd optimizer{{sparse, with_gradient(at::ones({2}, at::kHalf))}};
  EXPECT_THROW(scaler.unscale_(optimizer), InvalidArgument);
  EXPECT_FALSE(sparse.grad().is_coalesced());
}

TEST(GradScaler, RefusesFp16GradientsOfEveryForm) {
  const std::vector<at::Tensor> gradients = {
      at::ones({}, at::kHalf), at::ones({0}, at::kHalf), at::ones({4, 2}, at::kHalf).t(),
      at::full({2}, kInf, at::kHalf), duplicates(at::ones({2}, at::kHalf))};
  for (size_t i = 0; i < gradients.size(); ++i) {
    GradScaler scaler(at::kCPU);
    GroupedSgd optimizer{{{{with_gradient(at::ones({2}))}}, {{with_gradient(gradients[i])}}}};
    EXPECT_THAT(message_of<InvalidArgument>([&] { scaler.unscale_(optimizer); }),
                HasSubstr("parameter 1 of the optimizer has an FP16 gradient"))
        << i;
    EXPECT_TRUE(at::equal(optimizer.groups[0].tensors[0].grad(), at::ones({2}))) << i;
  }
}

TEST(GradScaler, RefusesGradientsOnAnotherDevice) {
  GradScaler scaler(at::kCPU);
  Sgd optimizer{{with_gradient(at::zeros({2}, at::device(at::kMeta)))}};
  EXPECT_EQ(message_of<InvalidArgument>([&] { scaler.unscale_(optimizer); }),
            "GradScaler: parameter 0 of the optimizer has a gradient on meta but the scale is on "
            "cpu; make the scaler on the device of the model");
}

// --- Sparse gradients ---

TEST(GradScaler, DuplicatesOfASparseGradientAreAddedBeforeTheCheck) {
  const auto outcome = [](const at::Tensor& gradient) {
    GradScaler scaler(at::kCPU, {.init_scale = 1});
    Sgd optimizer{{with_gradient(gradient)}};
    return scaler.step(optimizer);
  };
  EXPECT_EQ(outcome(duplicates(at::full({2}, 3e38F))), StepOutcome::skipped);
  EXPECT_EQ(outcome(duplicates(at::full({3}, -1.5e38F))), StepOutcome::skipped);
  EXPECT_EQ(outcome(duplicates(at::full({2}, 2e38F).to(at::kBFloat16))), StepOutcome::skipped);
  EXPECT_EQ(outcome(duplicates(at::tensor({kInf, -kInf}))), StepOutcome::skipped);
  EXPECT_EQ(outcome(duplicates(at::tensor({1.0F, kNan}))), StepOutcome::skipped);
  EXPECT_EQ(outcome(duplicates(at::full({2}, 1.5e38F))), StepOutcome::applied);
  EXPECT_EQ(outcome(duplicates(at::zeros({0}))), StepOutcome::applied);  // of no entry
  // Entries that are rows, of which one number overflows.
  const at::Tensor rows = at::tensor({1.0F, 3e38F, 1.0F, 3e38F}).view({2, 2});
  EXPECT_EQ(outcome(at::_sparse_coo_tensor_unsafe(at::zeros({1, 2}, at::kLong), rows, {3, 2})),
            StepOutcome::skipped);
}

TEST(GradScaler, ASparseGradientThatTwoOptimizersShareIsUnscaledOnce) {
  GradScaler scaler(at::kCPU, {.init_scale = 4});
  const at::Tensor shared = with_gradient(duplicates(at::full({2}, 8.0F)));
  Sgd first{{shared}};
  Sgd second{{shared}};
  scaler.unscale_(first);
  scaler.unscale_(second);
  EXPECT_TRUE(at::equal(shared.grad().to_dense(), at::tensor({4.0F, 0.0F})));
  EXPECT_EQ(scaler.step(first), StepOutcome::applied);
  EXPECT_EQ(scaler.step(second), StepOutcome::applied);
}

// In BF16 256 + 1 is 256, and again; the sum in FP32 is 258, which BF16 has.
TEST(GradScaler, DuplicatesOfABf16GradientAreAddedInFp32) {
  GradScaler scaler(at::kCPU, {.init_scale = 2});
  const at::Tensor values = at::tensor({256.0F, 1.0F, 1.0F}).to(at::kBFloat16);
  Sgd optimizer{{with_gradient(duplicates(values))}};
  EXPECT_EQ(scaler.step(optimizer), StepOutcome::applied);
  const at::Tensor gradient = optimizer.weights[0].grad();
  EXPECT_TRUE(gradient.is_sparse());
  EXPECT_EQ(gradient.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(at::equal(gradient.to_dense().to(at::kFloat), at::tensor({129.0F, 0.0F})));
}

// --- Order of calls ---

TEST(GradScaler, UnscaleNeedsNoScaleBefore) {
  GradScaler scaler(at::kCPU, {.init_scale = 4});
  Sgd optimizer{{with_gradient(at::full({1}, 8.0F))}};
  scaler.unscale_(optimizer);
  EXPECT_EQ(value(optimizer.weights[0].grad()), 2);
}

TEST(GradScaler, OneThatWasMovedFromSaysSo) {
  GradScaler scaler(at::kCPU);
  const GradScaler moved(std::move(scaler));
  EXPECT_EQ(moved.get_scale(), 65536);
  // NOLINTNEXTLINE(bugprone-use-after-move)
  EXPECT_EQ(message_of<InvalidArgument>([&] { scaler.scale(at::ones({})); }),
            "GradScaler: was moved from; use the one that it was moved to");
  EXPECT_THROW(scaler.get_scale(), InvalidArgument);
  EXPECT_THROW(scaler.update(2), InvalidArgument);
  EXPECT_THROW(scaler.state_dict(), InvalidArgument);
}

TEST(GradScaler, CallsOutOfOrderAreErrors) {
  GradScaler scaler(at::kCPU);
  Sgd optimizer{{with_gradient(at::ones({1}))}};
  EXPECT_EQ(message_of<InvalidArgument>([&] { scaler.update(); }),
            "GradScaler: update without a step since the last one; call step(optimizer) first");
  scaler.unscale_(optimizer);
  EXPECT_EQ(message_of<InvalidArgument>([&] { scaler.unscale_(optimizer); }),
            "GradScaler: unscale_ twice for one optimizer since the last update(); with several "
            "backward passes call it once, after the last one, or discard() a step that is left "
            "out");
  EXPECT_THAT(message_of<InvalidArgument>([&] { (void)scaler.state_dict(); }),
              StartsWith("GradScaler: state_dict in the middle of a step"));
  scaler.step(optimizer);
  EXPECT_EQ(message_of<InvalidArgument>([&] { scaler.unscale_(optimizer); }),
            "GradScaler: unscale_ after step; call it before, or update() in between");
  EXPECT_EQ(message_of<InvalidArgument>([&] { scaler.step(optimizer); }),
            "GradScaler: step twice for one optimizer since the last update(); call update() after "
            "the steps of all optimizers");
  EXPECT_EQ(optimizer.steps, 1);
  scaler.update();
  scaler.unscale_(optimizer);
}

TEST(GradScaler, ADiscardedStepLeavesScaleAndCount) {
  GradScaler scaler(at::kCPU);
  iterate(scaler, true);
  Sgd optimizer{{with_gradient(at::full({1}, kInf))}};
  scaler.unscale_(optimizer);
  scaler.discard();
  EXPECT_EQ(scaler.get_scale(), 65536);
  EXPECT_EQ(tracker(scaler), 1);
  optimizer.weights[0].mutable_grad() = at::full({1}, 65536.0F);
  EXPECT_EQ(scaler.step(optimizer), StepOutcome::applied);
  EXPECT_EQ(value(optimizer.weights[0]), -1);
}

TEST(GradScaler, ADiscardedStepOfAnyStageIsForgotten) {
  GradScaler scaler(at::kCPU, {.growth_interval = 2});
  Sgd first{{weight()}};
  Sgd second{{weight()}};
  const auto steps_begun = [&](int stage) {
    backward(scaler, first.weights[0], kInf);
    backward(scaler, second.weights[0], 1);
    if (stage > 0) {
      scaler.unscale_(first);
    }
    if (stage > 1) {
      scaler.step(first);
    }
    if (stage > 2) {
      scaler.unscale_(second);
    }
  };
  for (int stage = 0; stage < 4; ++stage) {
    steps_begun(stage);
    scaler.discard();
    scaler.discard();
    for (const Sgd* optimizer : {&first, &second}) {
      optimizer->weights[0].mutable_grad() = at::Tensor();
    }
    EXPECT_EQ(scaler.get_scale(), 65536) << stage;
    EXPECT_EQ(tracker(scaler), 0) << stage;
  }
  EXPECT_EQ(iterate(scaler, true), 65536);
  EXPECT_EQ(iterate(scaler, true), 131072);
}

TEST(GradScaler, ScaledGradientsAddedToUnscaledOnesAreAnError) {
  GradScaler scaler(at::kCPU);
  Sgd optimizer{{weight(), weight()}};
  backward(scaler, optimizer.weights[0], 1);
  backward(scaler, optimizer.weights[1], 1);
  scaler.unscale_(optimizer);
  backward(scaler, optimizer.weights[1], 1);
  EXPECT_EQ(message_of<InvalidArgument>([&] { scaler.step(optimizer); }),
            "GradScaler: parameter 1 of the optimizer has a gradient that changed after unscale_ "
            "and a further scale(loss): scaled values in unscaled ones; call unscale_ after the "
            "last backward, then clip, then step");
  EXPECT_EQ(optimizer.steps, 0);
}

TEST(GradScaler, AGradientThatComesAfterUnscaleIsAnError) {
  GradScaler scaler(at::kCPU);
  Sgd optimizer{{weight(), weight()}};
  backward(scaler, optimizer.weights[0], 1);
  scaler.unscale_(optimizer);
  backward(scaler, optimizer.weights[1], 1);
  EXPECT_THAT(message_of<InvalidArgument>([&] { scaler.step(optimizer); }),
              HasSubstr("parameter 1 of the optimizer has a gradient that changed"));
}

// --- Several optimizers ---

TEST(GradScaler, EachOptimizerIsSkippedOnItsOwnAndTheScaleBacksOffOnce) {
  GradScaler scaler(at::kCPU);
  Sgd first{{weight()}};
  Sgd second{{weight()}};
  Sgd third{{weight()}};
  backward(scaler, first.weights[0], kInf);
  backward(scaler, second.weights[0], 2);
  backward(scaler, third.weights[0], kNan);
  EXPECT_EQ(scaler.step(first), StepOutcome::skipped);
  EXPECT_EQ(scaler.step(second), StepOutcome::applied);
  EXPECT_EQ(scaler.step(third), StepOutcome::skipped);
  scaler.update();
  EXPECT_EQ(value(first.weights[0]), 10);
  EXPECT_EQ(value(second.weights[0]), 8);
  EXPECT_EQ(scaler.get_scale(), 32768);
}

TEST(GradScaler, LossesAndUnscalesOfDifferentOptimizersMayAlternate) {
  GradScaler scaler(at::kCPU);
  Sgd first{{weight()}};
  Sgd second{{weight()}};
  backward(scaler, first.weights[0], 4);
  scaler.unscale_(first);
  first.weights[0].grad().mul_(0.5);
  backward(scaler, second.weights[0], 1);
  scaler.unscale_(second);
  EXPECT_EQ(scaler.step(first), StepOutcome::applied);
  EXPECT_EQ(scaler.step(second), StepOutcome::applied);
  EXPECT_EQ(value(first.weights[0]), 8);
  EXPECT_EQ(value(second.weights[0]), 9);
}

TEST(GradScaler, AnOptimizerWithoutGradientsHasNothingToDo) {
  GradScaler scaler(at::kCPU, {.growth_interval = 2});
  Sgd with{{weight()}};
  Sgd without{{weight()}};
  backward(scaler, with.weights[0], 1);
  EXPECT_EQ(scaler.step(with), StepOutcome::applied);
  EXPECT_EQ(scaler.step(without), StepOutcome::nothing_to_do);
  scaler.update();
  EXPECT_EQ(without.steps, 0);
  EXPECT_EQ(tracker(scaler), 1);
  // Nothing was checked at all: no finite step.
  EXPECT_EQ(scaler.step(without), StepOutcome::nothing_to_do);
  scaler.update();
  EXPECT_EQ(tracker(scaler), 1);
}

TEST(GradScaler, NoFormOfHavingNoGradientsIsAStep) {
  Sgd empty;
  Sgd frozen{{at::ones({2})}};
  Sgd undefined_gradients{{weight(), weight()}};
  for (Sgd* optimizer : {&empty, &frozen, &undefined_gradients}) {
    for (const bool unscales : {false, true}) {
      GradScaler scaler(at::kCPU, {.growth_interval = 1});
      if (unscales) {
        scaler.unscale_(*optimizer);
      }
      EXPECT_EQ(scaler.step(*optimizer), StepOutcome::nothing_to_do);
      scaler.update();
      EXPECT_EQ(scaler.get_scale(), 65536);
    }
    EXPECT_EQ(optimizer->steps, 0);
  }
  // A gradient of zeros, or of no number, is one.
  for (const at::Tensor& gradient : {at::zeros({2}), at::zeros({0})}) {
    GradScaler scaler(at::kCPU);
    Sgd optimizer{{with_gradient(gradient)}};
    EXPECT_EQ(scaler.step(optimizer), StepOutcome::applied);
  }
}

// torch divides 8 twice: 8 -> 2 -> 0.5.
TEST(GradScaler, AGradientThatTwoOptimizersShareIsUnscaledOnce) {
  GradScaler scaler(at::kCPU, {.init_scale = 4});
  const at::Tensor shared = with_gradient(at::full({1}, 8.0F));
  Sgd inner{{shared}};
  Sgd wrapper{{shared, with_gradient(at::full({1}, 4.0F))}};
  EXPECT_EQ(scaler.step(inner), StepOutcome::applied);
  EXPECT_EQ(scaler.step(wrapper), StepOutcome::applied);
  EXPECT_EQ(value(shared), -4);
  EXPECT_EQ(value(wrapper.weights[1]), -1);
}

TEST(GradScaler, ASharedGradientThatIsNotFiniteSkipsBoth) {
  GradScaler scaler(at::kCPU);
  const at::Tensor shared = with_gradient(at::full({1}, kInf));
  Sgd first{{shared}};
  Sgd second{{shared}};
  EXPECT_EQ(scaler.step(first), StepOutcome::skipped);
  EXPECT_EQ(scaler.step(second), StepOutcome::skipped);
  scaler.update();
  EXPECT_EQ(scaler.get_scale(), 32768);
}

TEST(GradScaler, ASharedParameterWithANewGradientIsUnscaledAgain) {
  GradScaler scaler(at::kCPU);
  const at::Tensor shared = weight();
  Sgd first{{shared}};
  Sgd second{{shared}};
  backward(scaler, shared, 1);
  scaler.step(first);
  shared.mutable_grad() = at::Tensor();
  backward(scaler, shared, 2);
  scaler.step(second);
  EXPECT_EQ(value(shared), 7);
}

TEST(GradScaler, ASharedGradientThatChangedInPlaceIsAnError) {
  GradScaler scaler(at::kCPU);
  const at::Tensor shared = weight();
  Sgd first{{shared}};
  Sgd second{{weight(), shared}};
  backward(scaler, shared, 1);
  scaler.step(first);
  shared.grad().zero_();
  backward(scaler, shared, 2);
  EXPECT_EQ(message_of<InvalidArgument>([&] { scaler.step(second); }),
            "GradScaler: parameter 1 of the optimizer has a gradient that was unscaled for another "
            "optimizer and changed since; unscale_ both optimizers before clipping, and set shared "
            "gradients to none before the next backward");
}

// --- A scale that is set ---

TEST(GradScaler, ANewScaleKeepsTheCount) {
  GradScaler scaler(at::kCPU, {.growth_interval = 2});
  iterate(scaler, true);
  scaler.update(16);
  EXPECT_EQ(scaler.get_scale(), 16);
  EXPECT_EQ(iterate(scaler, true), 32);
}

TEST(GradScaler, ANewScaleThatNoStepCouldUseIsRefused) {
  GradScaler scaler(at::kCPU);
  EXPECT_EQ(message_of<InvalidArgument>([&] { scaler.update(0.0F); }),
            "GradScaler: new_scale is 0; valid: a finite normal FP32 number above 0");
  for (const float bad : {-1.0F, kInf, kNan, 1e-42F}) {
    EXPECT_THROW(scaler.update(bad), InvalidArgument);
  }
  EXPECT_EQ(scaler.get_scale(), 65536);
}

TEST(GradScaler, TheScaleStaysFiniteHoweverItGrows) {
  for (const auto& [initial, growth] :
       {std::pair{0x1p126F, 2.0F}, {0x1p127F, 4.0F}, {1.0F, 3e38F}}) {
    GradScaler scaler(at::kCPU,
                      {.init_scale = initial, .growth_factor = growth, .growth_interval = 1});
    for (int i = 0; i < 6; ++i) {
      Sgd optimizer{{with_gradient(at::ones({2}))}};
      ASSERT_EQ(scaler.step(optimizer), StepOutcome::applied);
      scaler.update();
      ASSERT_TRUE(std::isnormal(scaler.get_scale())) << initial << " x " << growth;
    }
  }
}

// 2^16 is 142 halvings above 2^-126, the smallest normal FP32 number. torch goes on, to a scale of
// 0, with which it writes NaN into the weights.
TEST(GradScaler, SkipsAtTheSmallestScaleAreAnError) {
  GradScaler scaler(at::kCPU);
  for (int i = 0; i < 142; ++i) {
    iterate(scaler, false);
  }
  EXPECT_EQ(scaler.get_scale(), 0x1p-126F);
  Sgd optimizer{{with_gradient(at::full({1}, kNan))}};
  EXPECT_THAT(message_of<InvalidArgument>([&] { scaler.step(optimizer); }),
              StartsWith("GradScaler: gradients are not finite at the smallest scale, 1.17549e-38; "
                         "no scale helps"));
}

// --- Disabled ---

TEST(GradScaler, DisabledIsAsIfThereWereNone) {
  GradScaler scaler(at::kCPU, {.enabled = false});
  EXPECT_FALSE(scaler.is_enabled());
  EXPECT_EQ(scaler.get_scale(), 1);
  const at::Tensor loss = at::ones({}, at::kHalf);
  EXPECT_TRUE(scaler.scale(loss).is_same(loss));
  Sgd optimizer{{with_gradient(at::full({1}, kInf))}};
  scaler.unscale_(optimizer);
  EXPECT_EQ(scaler.step(optimizer), StepOutcome::applied);
  EXPECT_EQ(scaler.step(optimizer), StepOutcome::applied);
  scaler.update();
  scaler.update(0);
  EXPECT_EQ(value(optimizer.weights[0]), -kInf);
  const tensor::StateDict state = scaler.state_dict();
  EXPECT_TRUE(state.scalars().empty() && state.tensors().empty());
  scaler.load_state_dict(GradScaler(at::kCPU, {.init_scale = 8}).state_dict());
  EXPECT_EQ(scaler.get_scale(), 1);
}

// --- State ---

tensor::StateDict state(double scale, double growth, double backoff, int64_t interval,
                        int64_t tracker) {
  tensor::StateDict result;
  result.set("scale", scale);
  result.set("growth_factor", growth);
  result.set("backoff_factor", backoff);
  result.set("growth_interval", interval);
  result.set("_growth_tracker", tracker);
  return result;
}

TEST(GradScaler, StateHasTheKeysOfTorch) {
  GradScaler scaler(at::kCPU, {.init_scale = 8, .growth_factor = 4, .growth_interval = 3});
  iterate(scaler, true);
  const tensor::StateDict saved = scaler.state_dict();
  const tensor::StateDict expected = state(8, 4, 0.5, 3, 1);
  EXPECT_EQ(saved.scalars(), expected.scalars());
  EXPECT_TRUE(saved.tensors().empty());
}

// Options come with the state, as in torch.
TEST(GradScaler, GoesOnAfterALoadAsIfUninterrupted) {
  const std::string steps = "..x...x.....";
  const GradScalerOptions options{.init_scale = 8, .growth_factor = 4, .growth_interval = 3};
  GradScaler whole(at::kCPU, options);
  std::vector<float> expected;
  for (const char step : steps) {
    expected.push_back(iterate(whole, step == '.'));
  }
  GradScaler first(at::kCPU, options);
  for (size_t cut = 0; cut < steps.size(); ++cut) {
    GradScaler second(at::kCPU);
    second.load_state_dict(first.state_dict());
    for (size_t i = cut; i < steps.size(); ++i) {
      EXPECT_EQ(iterate(second, steps[i] == '.'), expected[i]) << "cut at " << cut;
    }
    iterate(first, steps[cut] == '.');
  }
}

TEST(GradScaler, ALoadForgetsTheStepUnderWay) {
  GradScaler scaler(at::kCPU);
  Sgd optimizer{{with_gradient(at::full({1}, kInf))}};
  scaler.unscale_(optimizer);
  scaler.load_state_dict(state(16, 2, 0.5, 2000, 7));
  EXPECT_EQ(scaler.get_scale(), 16);
  EXPECT_EQ(tracker(scaler), 7);
  scaler.unscale_(optimizer);
}

TEST(GradScaler, ACountBeyondTheIntervalGrowsAtTheNextFiniteStep) {
  GradScaler scaler(at::kCPU);
  scaler.load_state_dict(state(16, 2, 0.5, 5, 9));
  EXPECT_EQ(iterate(scaler, true), 32);
}

TEST(GradScaler, RefusesDamagedStatesAndKeepsItsOwn) {
  GradScaler scaler(at::kCPU, {.init_scale = 8});
  const auto refusal = [&](const tensor::StateDict& bad) {
    return message_of<Corruption>([&] { scaler.load_state_dict(bad); });
  };
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(refusal(state(0, 2, 0.5, 2000, 0)),
            "GradScaler: the state is damaged: loss scaler: initial is 0; valid: a finite normal "
            "FP32 number above 0");
  EXPECT_EQ(refusal(state(inf, 2, 0.5, 2000, 0)),
            "GradScaler: the state has scale inf; valid: a finite FP32 number");
  EXPECT_THAT(refusal(state(kNan, 2, 0.5, 2000, 0)), HasSubstr("scale nan"));
  EXPECT_THAT(refusal(state(1e300, 2, 0.5, 2000, 0)), HasSubstr("scale 1e+300"));
  EXPECT_THAT(refusal(state(-1, 2, 0.5, 2000, 0)), HasSubstr("initial is -1"));
  EXPECT_THAT(refusal(state(1e-42, 2, 0.5, 2000, 0)), HasSubstr("initial is"));
  EXPECT_THAT(refusal(state(8, 1, 0.5, 2000, 0)), HasSubstr("growth is 1"));
  EXPECT_THAT(refusal(state(8, 2, 1.5, 2000, 0)), HasSubstr("backoff is 1.5"));
  EXPECT_THAT(refusal(state(8, 2, 0.5, 0, 0)), HasSubstr("growth_interval is 0"));
  EXPECT_THAT(refusal(state(8, 2, 0.5, int64_t{1} << 40, 0)), HasSubstr("growth_interval"));
  EXPECT_THAT(refusal(state(8, 2, 0.5, 2000, -1)), HasSubstr("_growth_tracker -1"));
  EXPECT_THAT(refusal(tensor::StateDict()), HasSubstr("the state is empty"));
  tensor::StateDict incomplete;
  incomplete.set("scale", 8.0);
  EXPECT_THAT(refusal(incomplete), HasSubstr("growth_factor"));
  EXPECT_EQ(scaler.get_scale(), 8);
  EXPECT_EQ(scaler.options(), (GradScalerOptions{.init_scale = 8}));
}

// --- Waits ---

thread_local int host_reads = 0;

std::unique_ptr<at::ObserverContext> count_host_read(const at::RecordFunction& function) {
  host_reads += std::string(function.name()) == "aten::_local_scalar_dense" ? 1 : 0;
  return nullptr;
}

TEST(GradScaler, OnlyTheOutcomeOfAStepIsReadBackFromTheDevice) {
  GradScaler scaler(at::kCPU);
  Sgd optimizer{{weight()}};
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(count_host_read).scopes({at::RecordScope::FUNCTION}));
  host_reads = 0;
  backward(scaler, optimizer.weights[0], 1);
  scaler.unscale_(optimizer);
  EXPECT_EQ(host_reads, 0);
  scaler.step(optimizer);
  EXPECT_EQ(host_reads, 1);
  scaler.update();
  at::removeCallback(handle);
  EXPECT_EQ(host_reads, 1);
}

}  // namespace
}  // namespace mantissa::amp
