#include "mantissa/ops/weight_update.h"

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/base/random.h"
#include "mantissa/ops/adamw.h"
#include "mantissa/ops/sgd.h"
#include "mantissa/ops/simd_target_testing.h"
#include "mantissa/ops/split_weight.h"

namespace mantissa::ops {
namespace {

using at::Tensor;
using numerics::Rounding;
using ::testing::HasSubstr;

TEST(SplitWeight, IsExactForEveryKindOfNumber) {
  Random random(11, 0);
  std::vector<float> values = {0.0F,
                               -0.0F,
                               1.0F,
                               0x1p-149F,
                               0x1.fffffep127F,
                               0x1.8p-126F,
                               std::numeric_limits<float>::infinity()};
  for (int i = 0; i < 200000; ++i) {
    const float value = std::bit_cast<float>(random.next_u32());
    if (value == value) {
      values.push_back(value);
    }
  }
  // Around each tie.
  for (uint32_t upper = 0; upper < 0x7f80; upper += 7) {
    for (const uint32_t lower : {0x7fffU, 0x8000U, 0x8001U, 0xffffU, 0U}) {
      values.push_back(std::bit_cast<float>((upper << 16) | lower));
    }
  }
  for (const float value : values) {
    for (const float x : {value, -value}) {
      ASSERT_EQ(std::bit_cast<uint32_t>(join_weight(split_weight(x))), std::bit_cast<uint32_t>(x))
          << x << " seed 11";
    }
  }
  EXPECT_TRUE(std::isnan(join_weight(split_weight(std::nanf("")))));
}

TEST(SplitWeight, TheModelIsTheNearestBf16) {
  EXPECT_EQ(join_weight({split_weight(1 + 0x1p-9F).model, 0}), 1);
  EXPECT_EQ(join_weight({split_weight(1 + 0x1.8p-8F).model, 0}), 1 + 0x1p-7F);
  EXPECT_EQ(join_weight({split_weight(1 + 0x1p-8F).model, 0}), 1 + 0x1p-7F);  // a tie
}

// One parameter of each way to keep its weights, of 33001 elements: more than a chunk.
struct Form {
  const char* name;
  at::ScalarType dtype;
  bool is_split;
  bool is_compensated;
  Rounding rounding;
};

const std::vector<Form> kForms = {
    {"split", at::kBFloat16, true, false, Rounding::nearest_even},
    {"compensated bf16", at::kBFloat16, false, true, Rounding::nearest_even},
    {"compensated fp16", at::kHalf, false, true, Rounding::nearest_even},
    {"stochastic bf16", at::kBFloat16, false, false, Rounding::stochastic},
    {"stochastic fp16", at::kHalf, false, false, Rounding::stochastic},
    {"alone", at::kBFloat16, false, false, Rounding::nearest_even},
};

WeightUpdate update_of(const Form& form, const Tensor& initial, const Tensor& gradient,
                       uint64_t step = 0) {
  WeightUpdate update;
  update.model = initial.to(form.dtype);
  update.gradient = gradient;
  update.lr = 1e-2;
  update.weight_decay = 0.1;
  if (form.is_split) {
    update.rest = at::zeros_like(update.model, at::kShort);
  } else if (form.is_compensated) {
    update.rest = at::zeros_like(update.model);
  }
  update.rounding = form.rounding;
  update.seed = 3;
  update.stream = step;
  update.lost = at::zeros({}, at::kLong);
  return update;
}

TEST(WeightUpdate, EveryFormIsWhatTheReferenceMakesOfItOnEveryInstructionSet) {
  on_every_simd_target([] {
    at::manual_seed(1);
    for (const Form& form : kForms) {
      const Tensor initial = at::randn({33001});
      const Tensor gradient = at::randn({33001}).mul(1e-3);
      const auto parameter = [&] {
        return AdamwParameter{update_of(form, initial, gradient), at::zeros({33001}),
                              at::zeros({33001}), at::zeros({}, at::kLong)};
      };
      const AdamwParameter fast = parameter();
      const AdamwParameter slow = parameter();
      for (int step = 0; step < 3; ++step) {
        adamw_({fast}, {});
        adamw_reference_({slow}, {});
      }
      EXPECT_TRUE(at::equal(fast.weight.model, slow.weight.model)) << form.name;
      EXPECT_TRUE(!fast.weight.rest.defined() || at::equal(fast.weight.rest, slow.weight.rest))
          << form.name;
      EXPECT_TRUE(at::equal(fast.weight.lost, slow.weight.lost)) << form.name;

      const SgdParameter fast_sgd = {update_of(form, initial, gradient), {}};
      const SgdParameter slow_sgd = {update_of(form, initial, gradient), {}};
      sgd_({fast_sgd}, {.momentum = 0});
      sgd_reference_({slow_sgd}, {.momentum = 0});
      EXPECT_TRUE(at::equal(fast_sgd.weight.model, slow_sgd.weight.model)) << form.name;
    }
  });
}

TEST(WeightUpdate, SplitWeightsAreThoseOfAnFp32MasterBitForBit) {
  at::manual_seed(2);
  const Tensor initial = at::randn({5000}).to(at::kBFloat16).to(at::kFloat);
  const AdamwParameter split = {update_of(kForms[0], initial, at::zeros({5000})), at::zeros({5000}),
                                at::zeros({5000}), at::zeros({}, at::kLong)};
  AdamwParameter whole = split;
  whole.weight.master = initial.clone();
  whole.weight.model = initial.to(at::kBFloat16);
  whole.weight.rest = Tensor();
  whole.weight.lost = Tensor();
  whole.exp_avg = at::zeros({5000});
  whole.exp_avg_sq = at::zeros({5000});
  whole.step = at::zeros({}, at::kLong);
  for (int step = 0; step < 50; ++step) {
    const Tensor gradient = at::randn({5000}).to(at::kBFloat16);
    AdamwParameter a = split;
    AdamwParameter b = whole;
    a.weight.gradient = b.weight.gradient = gradient;
    adamw_({a}, {});
    adamw_({b}, {});
  }
  EXPECT_TRUE(at::equal(weights_of(split.weight), whole.weight.master));
}

// 1000 updates of `lr` on a weight of 1. 1e-3 is below half of the rounding step of BF16, 2^-7, and
// 2^-13 below half of that of FP16, 2^-10; also below 1, where the steps are half of these.
double after_small_updates(const Form& form, int64_t weights, double lr = 1e-3) {
  const Tensor gradient = at::ones({weights});
  WeightUpdate update = update_of(form, at::ones({weights}), gradient);
  update.lr = lr;
  update.weight_decay = 0;
  for (uint64_t step = 0; step < 1000; ++step) {
    update.stream = step;
    sgd_({{update, {}}}, {.momentum = 0});
  }
  return weights_of(update).mean().item<double>();
}

TEST(WeightUpdate, SmallUpdatesArriveUnlessTheyAreRoundedAway) {
  // Rounded in FP32 at each of 1000 steps near 1: 1000 * 2^-25 at most.
  EXPECT_NEAR(after_small_updates(kForms[0], 1), 0, 1000 * 0x1p-25);
  // The compensation has 8 bits of its own, 2^-17 of a weight near 1, and is rounded each step.
  EXPECT_NEAR(after_small_updates(kForms[1], 1), 0, 1000 * 0x1p-18);
  // Five standard errors: a step moves by 2^-8 or less with variance at most its square over four,
  // 1000 steps, 4096 weights.
  EXPECT_NEAR(after_small_updates(kForms[3], 4096), 0, 5 * 0x1p-8 / 2 * std::sqrt(1000.0 / 4096));
  EXPECT_EQ(after_small_updates(kForms[5], 1), 1);
}

TEST(WeightUpdate, SmallUpdatesOfFp16WeightsArriveToo) {
  constexpr double kLr = 0x1p-13;
  const double exact = 1 - 1000 * kLr;
  EXPECT_NEAR(after_small_updates(kForms[2], 1, kLr), exact, 1000 * 0x1p-23);
  EXPECT_NEAR(after_small_updates(kForms[4], 4096, kLr), exact,
              5 * 0x1p-11 / 2 * std::sqrt(1000.0 / 4096));
  const Form alone = {"alone fp16", at::kHalf, false, false, Rounding::nearest_even};
  EXPECT_EQ(after_small_updates(alone, 1, kLr), 1);
}

// AdamW moves a weight by lr whatever its gradient: on 256, where BF16 has steps of 2 above and 1
// below, 2^-4 is lost, and of the other ways 64 of them arrive. The bounds are those above.
TEST(WeightUpdate, SmallUpdatesOfAdamwArriveUnlessTheyAreRoundedAway) {
  const auto after = [](const Form& form, int64_t weights) {
    AdamwParameter each = {update_of(form, at::full({weights}, 256.0F), at::ones({weights})),
                           at::zeros({weights}), at::zeros({weights}), at::zeros({}, at::kLong)};
    each.weight.lr = 0x1p-4;
    each.weight.weight_decay = 0;
    for (uint64_t step = 0; step < 64; ++step) {
      each.weight.stream = step;
      adamw_({each}, {});
    }
    return weights_of(each.weight).mean().item<double>();
  };
  // A dozen roundings of the update too, 2^-4 in size, and eps.
  const double of_updates = 64 * 0x1p-4 * (12 * 0x1p-24 + 1e-8);
  EXPECT_NEAR(after(kForms[0], 1), 252, 64 * 0x1p-17 + of_updates);
  EXPECT_NEAR(after(kForms[1], 1), 252, 64 * 0x1p-10 + of_updates);
  EXPECT_NEAR(after(kForms[3], 4096), 252, 5 * 0.5 * std::sqrt(64.0 / 4096) + of_updates);
  EXPECT_EQ(after(kForms[5], 1), 256);
}

TEST(WeightUpdate, LostUpdatesAreCounted) {
  WeightUpdate update = update_of(kForms[5], at::ones({100}), at::ones({100}));
  update.weight_decay = 0;
  update.gradient.slice(0, 0, 10).zero_();  // no update, so none is lost
  update.gradient.slice(0, 10, 30).fill_(90);
  update.lr = 1e-3;
  sgd_({{update, {}}}, {.momentum = 0});
  EXPECT_EQ(update.lost.item<int64_t>(), 70);
}

TEST(WeightUpdate, RefusesFormsThatCannotBe) {
  const Tensor gradient = at::ones({4});
  const auto refusal = [&](const WeightUpdate& update) {
    return message_of<InvalidArgument>([&] { sgd_({{update, {}}}, {.momentum = 0}); });
  };
  WeightUpdate half = update_of(kForms[4], at::ones({4}), gradient);
  half.rest = at::zeros({4}, at::kShort);
  half.rounding = Rounding::nearest_even;
  EXPECT_THAT(refusal(half), HasSubstr("a rest of Short with a model of Half"));
  WeightUpdate both = update_of(kForms[0], at::ones({4}), gradient);
  both.master = at::ones({4});
  EXPECT_THAT(refusal(both), HasSubstr("and a master"));
  WeightUpdate nothing;
  nothing.gradient = gradient;
  EXPECT_THAT(refusal(nothing), HasSubstr("neither a master nor a model"));
  WeightUpdate idle = update_of(kForms[0], at::ones({4}), gradient);
  idle.rounding = Rounding::stochastic;
  EXPECT_THAT(refusal(idle), HasSubstr("rounding stochastic has no effect here"));
}

}  // namespace
}  // namespace mantissa::ops
