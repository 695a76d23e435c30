#include <functional>
#include <thread>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "mantissa/amp/autocast.h"
#include "mantissa/amp/region_state.h"

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

// How a layer uses a weight of 4 by 4.
struct Layer {
  const char* name;
  std::function<at::Tensor(const at::Tensor& x, const at::Tensor& w)> call;
};

const std::vector<Layer> kLayers = {
    {"mm", [](const at::Tensor& x, const at::Tensor& w) { return at::mm(x, w); }},
    {"mm of its transpose",
     [](const at::Tensor& x, const at::Tensor& w) { return at::mm(x, w.t()); }},
    {"matmul with a vector",
     [](const at::Tensor& x, const at::Tensor& w) { return at::matmul(x[0], w); }},
    {"linear", [](const at::Tensor& x, const at::Tensor& w) { return at::linear(x, w); }},
    {"bmm", [](const at::Tensor& x,
               const at::Tensor& w) { return at::bmm(x.unsqueeze(0), w.unsqueeze(0)); }},
    {"conv1d", [](const at::Tensor& x, const at::Tensor& w) {
       return at::conv1d(x.unsqueeze(0), w.unsqueeze(2));
     }}};

// What may go before the pass that is trained on, in the same region.
struct FirstPass {
  const char* name;
  std::function<void(const Layer& layer, const at::Tensor& x, const at::Tensor& w)> run;
};

const std::vector<FirstPass> kFirstPasses = {
    {"no_grad",
     [](const Layer& layer, const at::Tensor& x, const at::Tensor& w) {
       const at::NoGradGuard no_grad;
       EXPECT_FALSE(layer.call(x, w).requires_grad());
     }},
    {"inference mode",
     [](const Layer& layer, const at::Tensor& x, const at::Tensor& w) {
       const c10::InferenceMode inference;
       EXPECT_FALSE(layer.call(x, w).requires_grad());
     }},
    {"no_grad in a nested region of another format",
     [](const Layer& layer, const at::Tensor& x, const at::Tensor& w) {
       const at::NoGradGuard no_grad;
       const Autocast nested(find_policy("torch compute=fp16"));
       layer.call(x, w);
     }},
    {"no_grad under the other way to add gradients",
     [](const Layer& layer, const at::Tensor& x, const at::Tensor& w) {
       const at::NoGradGuard no_grad;
       for (const char* policy : {"torch", "torch-fixed"}) {
         const Autocast nested(find_policy(policy));
         layer.call(x, w);
       }
     }},
    {"a frozen weight", [](const Layer& layer, const at::Tensor& x, const at::Tensor& w) {
       w.requires_grad_(false);
       EXPECT_FALSE(layer.call(x, w).requires_grad());
       w.requires_grad_(true);
     }}};

TEST(CastCache, NoPassBeforeTakesAwayAGradient) {
  const at::Tensor x = at::randn({4, 4});
  const at::Tensor values = at::randn({4, 4});
  for (const char* policy : {"torch", "torch-fixed", "torch-fixed compute=fp16", "lean"}) {
    for (const Layer& layer : kLayers) {
      const auto gradient = [&](const FirstPass* first) {
        const at::Tensor w = values.clone().requires_grad_();
        at::Tensor loss;
        {
          const Autocast region(find_policy(policy));
          if (first != nullptr) {
            first->run(layer, x, w);
          }
          loss = layer.call(x, w).sum();
        }
        loss.backward();
        return w.grad();
      };
      const at::Tensor expected = gradient(nullptr);
      for (const FirstPass& first : kFirstPasses) {
        SCOPED_TRACE(::testing::Message() << policy << ", " << layer.name << ", " << first.name);
        const at::Tensor actual = gradient(&first);
        ASSERT_TRUE(actual.defined());
        EXPECT_EQ(actual.scalar_type(), at::kFloat);
        EXPECT_TRUE(at::equal(actual, expected));
      }
    }
  }
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

TEST(CastCache, NoWayToChangeAWeightLeavesItsOldCast) {
  using Change = std::function<void(at::Tensor & w)>;
  const std::vector<std::pair<const char*, Change>> changes = {
      {"copy_",
       [](at::Tensor& w) {
         w.copy_(at::randn({4, 4}));
       }},
      {"a row through a view", [](at::Tensor& w) { w.detach().select(0, 1).fill_(3); }},
      {"one number of its transpose", [](at::Tensor& w) { w.detach().t()[0][1].fill_(7); }},
      {"other values",
       [](at::Tensor& w) {
         w.set_data(at::randn({4, 4}));
       }},
      {"values of other strides",
       [](at::Tensor& w) {
         w.set_data(at::randn({4, 4}).t());
       }},
      {"in inference mode", [](at::Tensor& w) {
         const c10::InferenceMode inference;
         w.mul_(2);
       }}};
  for (const char* policy : {"torch", "torch-fixed compute=fp16"}) {
    for (const auto& [name, change] : changes) {
      SCOPED_TRACE(::testing::Message() << policy << ", " << name);
      at::Tensor w = at::randn({4, 4}).requires_grad_();
      const Autocast region(find_policy(policy));
      const at::Tensor before = at::mm(at::eye(4), w);
      {
        const at::NoGradGuard no_grad;
        change(w);
      }
      const at::Tensor after = at::mm(at::eye(4), w);
      EXPECT_FALSE(at::equal(after, before));
      EXPECT_TRUE(at::equal(after, w.to(after.scalar_type())));
    }
  }
}

TEST(CastCache, GradientsOfNestedFormatsAddUp) {
  const std::vector<std::vector<const char*>> nestings = {
      {"torch", "torch compute=fp16"},
      {"torch compute=fp16", "torch"},
      {"torch-fixed", "torch-fixed compute=fp16", "torch-fixed"},
      {"torch", "torch-fixed", "torch"},
      {"torch-fixed", "fp32", "lean compute=fp16"}};
  for (const auto& nesting : nestings) {
    const at::Tensor w = weight();
    at::Tensor loss = at::zeros({});
    const std::function<void(size_t)> enter = [&](size_t level) {
      if (level < nesting.size()) {
        const Autocast region(find_policy(nesting[level]));
        loss = loss.add(at::mm(at::ones({2, 2}), w).to(at::kFloat).sum());
        enter(level + 1);
        loss = loss.add(at::linear(at::ones({2, 2}), w).to(at::kFloat).sum());
      }
    };
    enter(0);
    loss.backward();
    const auto uses = static_cast<float>(2 * nesting.size());
    EXPECT_TRUE(at::equal(w.grad(), at::full({2, 2}, 2 * uses))) << nesting[0] << nesting[1];
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

TEST(CastCache, WhatAnotherThreadClearsIsItsOwn) {
  const at::Tensor w = weight();
  const at::Tensor x = at::ones({2, 2}, at::kBFloat16);
  const Autocast region(find_policy("torch"));
  at::mm(x, w);
  const RegionState state;
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const RestoreRegion same(state);
      for (int repeat = 0; repeat < 20; ++repeat) {
        EXPECT_EQ(at::mm(x, w)[0][0].item<float>(), 2);
        clear_cast_cache();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(cast_cache_bytes(), 4 * 2);
  EXPECT_EQ(counted([&] { at::mm(x, w); }).cache_hits, 1);
}

TEST(CastCache, DoesNotGrowWhileItsWeightsTrainInsideARegion) {
  for (const char* policy : {"torch", "torch-fixed", "torch-fixed compute=fp16"}) {
    const std::vector<at::Tensor> weights = {weight(), weight(), weight()};
    const Autocast region(find_policy(policy));
    for (int pass = 0; pass < 20; ++pass) {
      at::Tensor x = at::ones({2, 2});
      for (const at::Tensor& w : weights) {
        x = at::mm(x, w).mul(0.5);
      }
      x.sum().backward();
      EXPECT_EQ(cast_cache_bytes(), 3 * 4 * 2) << policy << " " << pass;
      const at::NoGradGuard no_grad;
      for (const at::Tensor& w : weights) {
        w.sub_(w.grad(), 0x1p-8);
        w.mutable_grad() = at::Tensor();
      }
    }
  }
}

// As of weights that a hypernetwork makes for each pass. Between two sweeps there may be twice the
// fewest entries, which is 16.
TEST(CastCache, DropsTheCastsOfFreedWeights) {
  for (const bool records : {true, false}) {
    const at::AutoGradMode mode(records);
    const at::Tensor kept = weight();
    const Autocast region(find_policy("torch-fixed"));
    at::mm(kept, kept);
    for (int i = 0; i < 500; ++i) {
      const at::Tensor w = weight();
      at::mm(w, w);
    }
    EXPECT_LE(cast_cache_bytes(), 32 * 4 * 2) << records;
    EXPECT_EQ(counted([&] { at::mm(kept, kept); }).casts, 0) << records;
  }
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

TEST(CastCache, WithReduceFp32ALayerUsedManyTimesHasWholeGradients) {
  for (const auto& [policy, uses] : {std::pair{"torch-fixed", 1000},
                                     {"keras", 1000},
                                     {"torch reduce=fp32", 1000},
                                     {"lean compute=fp16", 5000}}) {
    const at::Tensor w = at::zeros({1, 1}).requires_grad_();
    const at::Tensor bias = at::zeros({1}).requires_grad_();
    at::Tensor total = at::zeros({1, 1});
    {
      const Autocast region(find_policy(policy));
      for (int i = 0; i < uses; ++i) {
        total = total.add(at::linear(at::ones({1, 1}), w, bias).to(at::kFloat));
      }
    }
    total.sum().backward();
    EXPECT_EQ(w.grad().item<float>(), uses) << policy;
    EXPECT_EQ(bias.grad().item<float>(), uses) << policy;
  }
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
