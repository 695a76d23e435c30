#include "mantissa/optim/ema.h"

#include <cmath>
#include <limits>

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/numerics/rounding.h"

namespace mantissa::optim {
namespace {

using at::Tensor;

Tensor leaf(const Tensor& value) { return value.detach().clone().requires_grad_(); }

const OptimizerOptions kPlainSgd = {.kind = Kind::sgd, .weight_decay = 0, .momentum = 0};

// The average of a 16-bit weight that jumps from `first` to `last`, after `updates`.
double average_of_jump(at::ScalarType dtype, double first, double last, double decay, int updates) {
  const Tensor weight = leaf(at::full({1}, first, dtype));
  Optimizer optimizer({{"w", weight}}, kPlainSgd);
  Ema ema(optimizer, {.decay = decay});
  weight.mutable_grad() = at::full({1}, first - last, dtype);
  optimizer.step({.lr = 1});
  EXPECT_EQ(weight.item<float>(), last);
  for (int i = 0; i < updates; ++i) {
    ema.update(optimizer, StepOutcome::applied);
  }
  return ema.shadow("w").item<float>();
}

// In 16 bits these would stay at 1 and stop at 0.25. Two roundings an update, the numbers below 1,
// and that of the rate: 2^-25 relative, which counts as often as the average moves.
TEST(Ema, MovesWhere16BitsWouldStandStill) {
  EXPECT_EQ(numerics::round_to(numerics::Format::bf16, 0.999F), 1);
  EXPECT_NEAR(average_of_jump(at::kBFloat16, 1, 0, 0.999, 1000), std::pow(0.999, 1000),
              1002 * 0x1p-24);
  EXPECT_NEAR(average_of_jump(at::kHalf, 0, 1, 0.9999, 20000), 1 - std::pow(0.9999, 20000),
              20002 * 0x1p-24);
}

// As above, the bounds times the largest number: a power of two at which BF16 has steps of 2, and
// subnormal numbers of FP16, of which an average would hold none.
TEST(Ema, MovesByLessThanAStepOfTheWeightsWhereverTheyAre) {
  EXPECT_NEAR(average_of_jump(at::kBFloat16, 256, 258, 0.999, 1000),
              258 - 2 * std::pow(0.999, 1000), 258 * 1002 * 0x1p-23);
  EXPECT_NEAR(average_of_jump(at::kBFloat16, -1, 1, 0.9999, 5000), 1 - 2 * std::pow(0.9999, 5000),
              5002 * 0x1p-23);
  EXPECT_NEAR(average_of_jump(at::kHalf, 0x1p-24, 0x1p-23, 0.99, 50),
              0x1p-23 - 0x1p-24 * std::pow(0.99, 50), 0x1p-23 * 52 * 0x1p-23);
  EXPECT_NEAR(average_of_jump(at::kFloat, 1, 0, 0.9999, 5000), std::pow(0.9999, 5000),
              5002 * 0x1p-24);
}

TEST(Ema, AveragesTheFp32WeightsOfEveryKindOfMasters) {
  for (const Masters masters :
       {Masters::fp32, Masters::split, Masters::compensated, Masters::stochastic, Masters::none}) {
    at::manual_seed(71);
    const Tensor weight = leaf(at::randn({6, 5}).t().to(at::kBFloat16));
    const Tensor norm = leaf(at::randn({4}));
    Optimizer optimizer({{"w", weight}, {"norm", norm}}, {.masters = masters});
    Ema ema(optimizer, {.decay = 0.5});
    Tensor expected = optimizer.master("w").clone();
    for (int step = 0; step < 3; ++step) {
      weight.mutable_grad() = at::randn(weight.sizes()).to(at::kBFloat16);
      norm.mutable_grad() = at::randn({4});
      ema.update(optimizer, optimizer.step({.lr = 1e-3}));
      // A half of each is exact but for the rounding of the sum, as below.
      expected = expected.add(optimizer.master("w").sub(expected).mul(0.5));
    }
    EXPECT_TRUE(at::equal(ema.shadow("w"), expected)) << to_string(masters);
    EXPECT_EQ(ema.updates(), 3);
    EXPECT_EQ(ema.bytes(), (30 + 4) * 4);
  }
}

TEST(Ema, ASkippedStepLeavesItAndOneWithNothingToDoToo) {
  const Tensor weight = leaf(at::ones({3}));
  Optimizer optimizer({{"w", weight}}, kPlainSgd);
  Ema ema(optimizer, {});
  ema.update(optimizer, optimizer.step({.lr = 1}));
  weight.mutable_grad() = at::full({3}, std::numeric_limits<float>::infinity(), at::kFloat);
  const GradientReport report = optimizer.read_gradients();
  ema.update(optimizer, optimizer.step({.lr = 1, .found_inf = report.found_inf}));
  EXPECT_EQ(ema.updates(), 0);
  EXPECT_TRUE(at::equal(ema.shadow("w"), at::ones({3})));
}

// Of each kind of masters that a composition can update, with warm-up.
TEST(Ema, WithAPendingOutcomeIsSelectedOnTheDevice) {
  for (const Masters masters :
       {Masters::fp32, Masters::split, Masters::compensated, Masters::none}) {
    at::manual_seed(73);
    const Tensor weight = leaf(at::randn({6, 5}).t().to(at::kBFloat16));
    Optimizer optimizer({{"w", weight}}, {.masters = masters, .fused = false});
    Ema pending(optimizer, {.decay = 0.4, .warmup = true});
    Ema known(optimizer, {.decay = 0.4, .warmup = true});
    for (int step = 0; step < 9; ++step) {
      weight.mutable_grad() = at::randn(weight.sizes()).to(at::kBFloat16);
      const PendingOutcome outcome = optimizer.enqueue_step(
          {.lr = 1e-2, .found_inf = at::full({}, step % 3 == 1 ? 1 : 0, at::kFloat)});
      pending.update(optimizer, outcome);
      known.update(optimizer, outcome.read());
    }
    EXPECT_EQ(pending.updates(), 6);
    EXPECT_TRUE(at::equal(pending.shadow("w"), known.shadow("w"))) << to_string(masters);
    EXPECT_FALSE(at::equal(pending.shadow("w"), optimizer.master("w")));
  }
}

TEST(Ema, DecayOfACountOnTheDeviceIsTheSameNumber) {
  for (const EmaOptions& options : {EmaOptions{.decay = 0.99, .warmup = true}, EmaOptions{}}) {
    for (int64_t n = 0; n < 1000; n += 37) {
      const Tensor count = at::full({}, n, at::TensorOptions(at::kLong));
      EXPECT_EQ(decay_at(options, count).item<double>(), decay_at(options, n)) << n;
    }
  }
}

TEST(Ema, WarmUpForgetsTheFirstWeights) {
  const EmaOptions options = {.decay = 0.99, .warmup = true};
  EXPECT_DOUBLE_EQ(decay_at(options, 0), 0.1);
  EXPECT_DOUBLE_EQ(decay_at(options, 10), 0.55);
  EXPECT_DOUBLE_EQ(decay_at(options, 889), 890.0 / 899);
  EXPECT_EQ(decay_at(options, 891), 0.99);  // 892 / 901 = 0.990011
  EXPECT_EQ(decay_at({.decay = 0.99}, 0), 0.99);
}

TEST(EmaGuard, PutsTheAverageIntoTheModelAndTheWeightsBack) {
  at::manual_seed(72);
  const Tensor weight = leaf(at::randn({5, 3}).to(at::kBFloat16));
  const Tensor norm = leaf(at::randn({7}));
  Optimizer optimizer({{"w", weight}, {"norm", norm}});
  Ema ema(optimizer, {.decay = 0.5});
  weight.mutable_grad() = at::randn({5, 3}).to(at::kBFloat16);
  norm.mutable_grad() = at::randn({7});
  ema.update(optimizer, optimizer.step({.lr = 0.1}));
  const Tensor weight_before = weight.detach().clone();
  const Tensor norm_before = norm.detach().clone();
  {
    const auto version = norm._version();
    const EmaGuard averaged(ema);
    EXPECT_TRUE(at::equal(weight, ema.shadow("w").to(at::kBFloat16)));
    EXPECT_TRUE(at::equal(norm, ema.shadow("norm")));
    EXPECT_FALSE(at::equal(norm, norm_before));
    EXPECT_GT(norm._version(), version) << "caches of casts would miss it";
  }
  EXPECT_TRUE(at::equal(weight, weight_before));
  EXPECT_TRUE(at::equal(norm, norm_before));
  EXPECT_TRUE(norm.requires_grad());
}

TEST(Ema, StateRoundTripsAndAStateThatDoesNotFitChangesNothing) {
  const Tensor weight = leaf(at::ones({4}, at::kBFloat16));
  Optimizer optimizer({{"w", weight}}, kPlainSgd);
  Ema ema(optimizer, {.decay = 0.9, .warmup = true});
  weight.mutable_grad() = at::ones({4}, at::kBFloat16);
  ema.update(optimizer, optimizer.step({.lr = 0.25}));
  const tensor::StateDict saved = ema.state_dict();

  Ema other(optimizer, {.decay = 0.9, .warmup = true});
  EXPECT_FALSE(at::equal(other.shadow("w"), ema.shadow("w")));
  other.load_state_dict(saved);
  EXPECT_TRUE(at::equal(other.shadow("w"), ema.shadow("w")));
  EXPECT_EQ(other.updates(), 1);

  tensor::StateDict cast;
  cast.set("updates", int64_t{5});
  cast.set("shadow.w", at::zeros({4}, at::kBFloat16));
  EXPECT_EQ(message_of<Corruption>([&] { other.load_state_dict(cast); }),
            "ema: \"w\" in the state is BFloat16 of shape [4], here it is Float of shape [4]; "
            "resume with the model that was saved");
  tensor::StateDict longer;
  longer.set("updates", int64_t{5});
  longer.set("shadow.w", at::zeros({4}));
  longer.set("shadow.v", at::zeros({4}));
  EXPECT_EQ(message_of<Corruption>([&] { other.load_state_dict(longer); }),
            "ema: the state has 2 parameters, the model has 1; resume with the model that was "
            "saved");
  EXPECT_EQ(other.updates(), 1);
  EXPECT_TRUE(at::equal(other.shadow("w"), ema.shadow("w")));
}

TEST(Ema, BadDecaysAndOtherOptimizersAreRefused) {
  const Tensor weight = leaf(at::ones({4}));
  const Tensor stranger = leaf(at::ones({4}));
  Optimizer optimizer({{"w", weight}});
  const Optimizer other({{"v", stranger}});
  for (const double decay : {0.0, 1.0, -0.5, std::nan("")}) {
    EXPECT_THROW(Ema(optimizer, {.decay = decay}), InvalidArgument) << decay;
  }
  EXPECT_EQ(message_of<InvalidArgument>([&] { Ema(optimizer, {.decay = 1}); }),
            "ema: decay is 1; valid: above 0 and below 1");
  Ema ema(optimizer, {});
  EXPECT_EQ(message_of<InvalidArgument>([&] { ema.update(other, StepOutcome::applied); }),
            "ema: the optimizer has a parameter \"v\" that is not averaged; pass the optimizer it "
            "was made with");
  EXPECT_EQ(message_of<InvalidArgument>([&] { (void)ema.shadow("vv"); }),
            "ema: no parameter \"vv\"; valid: w");
}

}  // namespace
}  // namespace mantissa::optim
