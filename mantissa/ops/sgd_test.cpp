#include "mantissa/ops/sgd.h"

#include <limits>

#include <ATen/Context.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/ops/simd_target_testing.h"

namespace mantissa::ops {
namespace {

using at::Tensor;

Tensor scalar(double value) { return at::full({}, value, at::kFloat); }

// The weight after one step per gradient, from 1, in numbers that FP32 holds exactly.
float weight_after(const std::vector<float>& gradients, const SgdOptions& options, double lr,
                   double weight_decay) {
  const Tensor master = at::full({}, 1, at::kFloat);
  const Tensor momentum = options.momentum != 0 ? at::zeros_like(master) : Tensor();
  for (float gradient : gradients) {
    sgd_({{{master, {}, scalar(gradient), lr, weight_decay}, momentum}}, options);
  }
  return master.item<float>();
}

TEST(Sgd, TakesTheGradientOffTheWeight) {
  EXPECT_EQ(weight_after({2, 1}, {.momentum = 0}, 0.25, 0), 1 - 0.25F * 3);
}

TEST(Sgd, ClassicMomentumAddsUp) {  // b: 2, 2
  EXPECT_EQ(weight_after({2, 1}, {.momentum = 0.5}, 0.25, 0), 1 - 0.25F * 4);
}

TEST(Sgd, NesterovLooksAhead) {  // b: 2, 2; directions: 3, 2
  EXPECT_EQ(weight_after({2, 1}, {.momentum = 0.5, .kind = Momentum::nesterov}, 0.25, 0),
            1 - 0.25F * 5);
}

TEST(Sgd, DecoupledDecayStaysOutOfTheMomentum) {
  // w: 1 -> 1 - 0.25 * 0 - 0.125 = 0.875 -> 0.875 * 0.875.
  const SgdOptions options = {.momentum = 0.5, .decay = WeightDecay::decoupled};
  EXPECT_EQ(weight_after({0, 0}, options, 0.25, 0.5), 0.875F * 0.875F);
}

TEST(Sgd, L2DecayEntersTheMomentum) {
  // b: 0.5, then 0.25 + 0.5 * 0.875; w: 1 -> 0.875 -> 0.875 - 0.25 * 0.6875.
  const SgdOptions options = {.momentum = 0.5, .decay = WeightDecay::l2};
  EXPECT_EQ(weight_after({0, 0}, options, 0.25, 0.5), 0.875F - 0.25F * 0.6875F);
}

TEST(Sgd, IsBitForBitTheReferenceOnEveryInstructionSet) {
  on_every_simd_target([] {
    at::manual_seed(31);
    for (double momentum : {0.0, 0.9}) {
      for (Momentum kind : {Momentum::classic, Momentum::nesterov}) {
        for (WeightDecay decay : {WeightDecay::decoupled, WeightDecay::l2}) {
          for (at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
            const SgdOptions options = {momentum, kind, decay};
            const Tensor start = at::randn({4099});
            const auto make = [&](const Tensor& gradient) -> SgdParameter {
              const Tensor master = start.clone();
              return {
                  {master, dtype == at::kFloat ? Tensor() : master.to(dtype), gradient, 0.03, 0.1},
                  momentum != 0 ? at::zeros_like(master) : Tensor()};
            };
            const Tensor gradient = at::randn({4099}).to(dtype);
            const SgdParameter fast = make(gradient);
            const SgdParameter slow = make(gradient);
            for (int step = 0; step < 3; ++step) {
              sgd_({fast}, options, {scalar(3), scalar(0.7), scalar(0)});
              sgd_reference_({slow}, options, {scalar(3), scalar(0.7), scalar(0)});
            }
            EXPECT_TRUE(at::equal(fast.weight.master, slow.weight.master));
            EXPECT_TRUE(dtype == at::kFloat || at::equal(fast.weight.model, slow.weight.model));
            EXPECT_TRUE(momentum == 0 || at::equal(fast.momentum.values, slow.momentum.values));
          }
        }
      }
    }
  });
}

TEST(Sgd, ASkippedStepLeavesEverythingBitEqual) {
  const Tensor master = at::full({3}, 1.5, at::kFloat);
  const Tensor model = master.to(at::kHalf);
  const Tensor momentum = at::full({3}, 0.25, at::kFloat);
  const Tensor gradient = at::full({3}, std::numeric_limits<float>::quiet_NaN(), at::kHalf);
  EXPECT_FALSE(sgd_({{{master, model, gradient, 0.1, 0.1}, momentum}}, {}, {{}, {}, scalar(1)}));
  EXPECT_TRUE(at::equal(master, at::full({3}, 1.5, at::kFloat)));
  EXPECT_TRUE(at::equal(model, at::full({3}, 1.5, at::kHalf)));
  EXPECT_TRUE(at::equal(momentum, at::full({3}, 0.25, at::kFloat)));
}

TEST(Sgd, ABufferThatWouldBeIgnoredIsRefused) {
  const Tensor one = at::full({1}, 1, at::kFloat);
  try {
    sgd_({{{one, {}, one, 0.1, 0}, at::zeros_like(one)}}, {.momentum = 0});
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "sgd_: parameter 0: momentum is 0 and its buffer is defined; pass a buffer "
                 "exactly when momentum is not 0");
  }
  EXPECT_THROW(sgd_({{{one, {}, one, 0.1, 0}, {}}}, {}), InvalidArgument);
}

}  // namespace
}  // namespace mantissa::ops
