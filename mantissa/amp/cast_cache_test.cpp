#include <functional>
#include <thread>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "mantissa/amp/autocast.h"

namespace mantissa::amp {
namespace {

at::Tensor weight() { return at::ones({2, 2}).requires_grad_(); }

// What a block of code adds to this thread's statistics.
CastStatistics counted(const std::function<void()>& block) {
  const CastStatistics before = cast_statistics();
  block();
  const CastStatistics after = cast_statistics();
  return {after.casts - before.casts, after.cache_hits - before.cache_hits};
}

at::Tensor gradient_after(const std::function<void(const at::Tensor&)>& first_pass) {
  const at::Tensor w = weight();
  const at::Tensor x = at::ones({2, 2}, at::kBFloat16);
  at::Tensor loss;
  {
    const Autocast region(find_policy("torch"));
    first_pass(w);
    loss = at::mm(x, w).sum();
  }
  loss.backward();
  return w.grad();
}

TEST(CastCache, AParameterIsCastOnceARegion) {
  const at::Tensor w = weight();
  const at::Tensor x = at::ones({2, 2}, at::kBFloat16);
  const Policy policy = find_policy("torch");
  const CastStatistics inside = counted([&] {
    const Autocast region(policy);
    for (int i = 0; i < 5; ++i) {
      at::mm(x, w);
    }
    EXPECT_EQ(cast_cache_bytes(), 4 * 2);
  });
  EXPECT_EQ(inside.casts, 1);
  EXPECT_EQ(inside.cache_hits, 4);
  EXPECT_EQ(cast_cache_bytes(), 0);
}

TEST(CastCache, HoldsOnlyFp32LeavesThatRequireAGradient) {
  const at::Tensor x = at::ones({2, 2}, at::kBFloat16);
  const at::Tensor plain = at::ones({2, 2});
  const at::Tensor half = at::ones({2, 2}, at::kHalf).requires_grad_();
  const at::Tensor product = weight().mul(2);
  const Autocast region(find_policy("torch"));
  for (const at::Tensor& source : {plain, half, product}) {
    at::mm(x, source);
  }
  EXPECT_EQ(cast_cache_bytes(), 0);
}

TEST(CastCache, APassWithoutGradLeavesTheGradientWhole) {
  const at::Tensor x = at::ones({2, 2}, at::kBFloat16);
  const at::Tensor expected = gradient_after([](const at::Tensor&) {});
  const at::Tensor gradient = gradient_after([&](const at::Tensor& w) {
    const at::NoGradGuard no_grad;
    EXPECT_FALSE(at::mm(x, w).requires_grad());
  });
  ASSERT_TRUE(gradient.defined());
  EXPECT_EQ(gradient.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(gradient, expected));
}

TEST(CastCache, APassInInferenceModeLeavesTheGradientWhole) {
  const at::Tensor x = at::ones({2, 2}, at::kBFloat16);
  const at::Tensor expected = gradient_after([](const at::Tensor&) {});
  const at::Tensor gradient = gradient_after([&](const at::Tensor& w) {
    const c10::InferenceMode inference;
    EXPECT_FALSE(at::mm(x, w).requires_grad());
    EXPECT_GT(cast_cache_bytes(), 0);
    EXPECT_TRUE(at::mm(x, w).is_inference());
  });
  ASSERT_TRUE(gradient.defined());
  EXPECT_TRUE(at::equal(gradient, expected));
}

TEST(CastCache, InferenceModeReusesCasts) {
  const at::Tensor w = weight();
  const at::Tensor x = at::ones({2, 2}, at::kBFloat16);
  const c10::InferenceMode inference;
  const Autocast region(find_policy("torch"));
  const CastStatistics twice = counted([&] {
    at::mm(x, w);
    at::mm(x, w);
  });
  EXPECT_EQ(twice.casts, 1);
  EXPECT_EQ(twice.cache_hits, 1);
}

TEST(CastCache, InferenceTensorsAreCastEachTime) {
  const c10::InferenceMode inference;
  const at::Tensor w = at::ones({2, 2}).requires_grad_();
  const Autocast region(find_policy("torch"));
  at::mm(w, w);
  EXPECT_EQ(cast_cache_bytes(), 0);
}

TEST(CastCache, AWeightThatChangedInPlaceIsCastAgain) {
  const at::Tensor w = weight();
  const at::Tensor x = at::ones({2, 2}, at::kBFloat16);
  const Autocast region(find_policy("torch"));
  EXPECT_EQ(at::mm(x, w)[0][0].item<float>(), 2);
  {
    const at::NoGradGuard no_grad;
    w.mul_(2);
  }
  EXPECT_EQ(at::mm(x, w)[0][0].item<float>(), 4);
  w.detach().mul_(2);
  EXPECT_EQ(at::mm(x, w)[0][0].item<float>(), 8);
  EXPECT_EQ(cast_cache_bytes(), 4 * 2);  // the stale casts are gone
}

TEST(CastCache, AWeightWhoseStorageWasSwappedIsCastAgain) {
  at::Tensor w = weight();
  const at::Tensor x = at::ones({2, 2}, at::kBFloat16);
  const Autocast region(find_policy("torch"));
  EXPECT_EQ(at::mm(x, w)[0][0].item<float>(), 2);
  w.set_data(at::zeros({2, 2}));
  EXPECT_EQ(at::mm(x, w)[0][0].item<float>(), 0);
}

TEST(CastCache, AWeightThatBecameAnotherViewOfItsStorageIsCastAgain) {
  const at::Tensor values = at::randn({3, 2});
  at::Tensor w = at::zeros({2, 2}).requires_grad_();
  const Autocast region(find_policy("fp32 compute=bf16 mm=lower"));
  const at::Tensor identity = at::ones({2, 2}, at::kBFloat16).tril().triu();
  for (const at::Tensor& view :
       {values.narrow(0, 0, 2), values.narrow(0, 1, 2), values.narrow(0, 1, 2).t()}) {
    w.set_data(view);
    EXPECT_TRUE(at::equal(at::mm(identity, w), view.to(at::kBFloat16)));
  }
}

TEST(CastCache, NestedRegionsOfDifferentFormatsHaveCastsOfTheirOwn) {
  const at::Tensor w = weight();
  const at::Tensor x = at::ones({2, 2});
  const Autocast outer(find_policy("torch"));
  EXPECT_EQ(at::mm(x, w).scalar_type(), at::kBFloat16);
  {
    const Autocast inner(find_policy("torch compute=fp16"));
    EXPECT_EQ(at::mm(x, w).scalar_type(), at::kHalf);
  }
  const CastStatistics again =
      counted([&] { EXPECT_EQ(at::mm(x, w).scalar_type(), at::kBFloat16); });
  EXPECT_EQ(again.cache_hits, 1);
  EXPECT_EQ(cast_cache_bytes(), 2 * 4 * 2);
}

TEST(CastCache, LivesUntilTheOutermostRegionEnds) {
  const at::Tensor w = weight();
  {
    const auto outer = Autocast::disabled();
    {
      const Autocast inner(find_policy("torch"));
      at::mm(w, w);
    }
    EXPECT_GT(cast_cache_bytes(), 0);
  }
  EXPECT_EQ(cast_cache_bytes(), 0);
}

TEST(CastCache, ThreadsDoNotShareCasts) {
  const at::Tensor w = weight();
  const at::Tensor x = at::ones({2, 2});
  const Autocast region(find_policy("torch"));
  at::mm(x, w);
  std::thread([&] {
    const Autocast other(find_policy("torch compute=fp16"));
    EXPECT_EQ(at::mm(x, w).scalar_type(), at::kHalf);
    const at::NoGradGuard no_grad;
    w.mul_(2);
  }).join();
  const at::Tensor product = at::mm(x, w);
  EXPECT_EQ(product.scalar_type(), at::kBFloat16);
  EXPECT_EQ(product[0][0].item<float>(), 4);
}

// Generation in one long region: the memory of the second pass is that of the first.
TEST(CastCache, DoesNotGrowOverPassesAndIsHalfTheWeights) {
  const std::vector<at::Tensor> weights = {weight(), weight(), weight()};
  const at::NoGradGuard no_grad;
  const Autocast region(find_policy("torch compute=fp16"));
  for (int pass = 0; pass < 20; ++pass) {
    at::Tensor x = at::ones({2, 2});
    for (const at::Tensor& w : weights) {
      x = at::mm(x, w);
    }
    EXPECT_EQ(cast_cache_bytes(), 3 * 4 * 4 / 2);
  }
}

TEST(CastCache, ClearFreesItInsideARegion) {
  const at::Tensor w = weight();
  const at::Tensor x = at::ones({2, 2}, at::kBFloat16);
  const Autocast region(find_policy("torch"));
  at::mm(x, w);
  w.variable_data().zero_();  // raises no version
  EXPECT_EQ(at::mm(x, w)[0][0].item<float>(), 2);
  clear_cast_cache();
  EXPECT_EQ(cast_cache_bytes(), 0);
  EXPECT_EQ(at::mm(x, w)[0][0].item<float>(), 0);
}

TEST(CastCache, AFreedWeightsAddressIsNotTakenForTheOld) {
  const at::Tensor x = at::ones({2, 2}, at::kBFloat16);
  const Autocast region(find_policy("torch"));
  for (int i = 1; i <= 50; ++i) {
    const at::Tensor w = at::full({2, 2}, static_cast<float>(i)).requires_grad_();
    EXPECT_EQ(at::mm(x, w)[0][0].item<float>(), 2.0F * static_cast<float>(i));
  }
}

// The gradient of a 1x1 weight that multiplies each of `inputs` in one region.
float gradient_of_uses(const char* policy, const std::vector<float>& inputs) {
  const at::Tensor w = at::zeros({1, 1}).requires_grad_();
  at::Tensor total = at::zeros({1, 1});
  {
    const Autocast region(find_policy(policy));
    for (const float input : inputs) {
      total = total.add(at::mm(at::full({1, 1}, input), w).to(at::kFloat));
    }
  }
  total.sum().backward();
  return w.grad().item<float>();
}

// As in torch: the uses share one cast, whose gradient is a BF16 sum. 256 + 1 = 256 in BF16.
TEST(CastCache, TheGradientOfAWeightUsedManyTimesSumsIn16Bits) {
  EXPECT_EQ(gradient_of_uses("torch", std::vector<float>(1000, 1)), 256);
}

TEST(CastCache, WithReduceFp32TheGradientOfAWeightUsedManyTimesIsWhole) {
  EXPECT_EQ(gradient_of_uses("torch reduce=fp32", std::vector<float>(1000, 1)), 1000);
  std::vector<float> large_then_small(8, 1);
  large_then_small.insert(large_then_small.end(), 512, 0x1p-9F);
  EXPECT_EQ(gradient_of_uses("torch reduce=fp32", large_then_small), 9);
  EXPECT_EQ(gradient_of_uses("torch-fixed compute=fp16", std::vector<float>(5000, 1)), 5000);
}

TEST(CastCache, WithReduceFp32UsesShareTheNumbers) {
  const at::Tensor w = weight();
  const at::Tensor x = at::ones({2, 2}, at::kBFloat16);
  const Autocast region(find_policy("torch-fixed"));
  const CastStatistics five = counted([&] {
    for (int i = 0; i < 5; ++i) {
      at::mm(x, w);
    }
  });
  EXPECT_EQ(five.casts, 1);
  EXPECT_EQ(five.cache_hits, 4);
  EXPECT_EQ(cast_cache_bytes(), 4 * 2);
}

TEST(CastCache, WithReduceFp32APassWithoutGradLeavesTheGradientWhole) {
  const at::Tensor w = weight();
  const at::Tensor x = at::ones({2, 2}, at::kBFloat16);
  at::Tensor loss;
  {
    const Autocast region(find_policy("torch-fixed"));
    {
      const at::NoGradGuard no_grad;
      EXPECT_FALSE(at::mm(x, w).requires_grad());
    }
    {
      const c10::InferenceMode inference;
      at::mm(x, w);
    }
    loss = at::mm(x, w).sum();
  }
  loss.backward();
  EXPECT_TRUE(at::equal(w.grad(), at::full({2, 2}, 2.0F)));
}

}  // namespace
}  // namespace mantissa::amp
