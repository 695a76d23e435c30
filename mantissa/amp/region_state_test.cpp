#include "mantissa/amp/region_state.h"

#include <thread>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "mantissa/amp/at_autocast_testing.h"
#include "mantissa/amp/autocast.h"
#include "mantissa/amp/autocast_function.h"
#include "mantissa/amp/grad_scaler.h"
#include "mantissa/tensor/recompute.h"
#include "mantissa/tensor/scope.h"

namespace mantissa::amp {
namespace {

at::ScalarType product_dtype() { return at::mm(at::ones({2, 2}), at::ones({2, 2})).scalar_type(); }

TEST(RegionState, IsEnteredAgainAfterItsRegion) {
  const auto captured = [] {
    const Autocast region(find_policy("torch compute=fp16 scope:a=fp32"));
    const tensor::Scope scope("b");
    return RegionState();
  }();
  EXPECT_EQ(product_dtype(), at::kFloat);
  {
    const RestoreRegion region(captured);
    EXPECT_EQ(product_dtype(), at::kHalf);
    EXPECT_EQ(tensor::current_scope(), "b");
  }
  EXPECT_EQ(product_dtype(), at::kFloat);
  EXPECT_EQ(tensor::current_scope(), "");
}

TEST(RegionState, OfADisabledRegionAndOfNoneMakeNoCasts) {
  const RegionState none;
  const Autocast outer(find_policy("torch"));
  const auto disabled = [] {
    const auto region = Autocast::disabled();
    return RegionState();
  }();
  EXPECT_EQ(product_dtype(), at::kBFloat16);
  for (const RegionState* state : {&none, &disabled}) {
    const RestoreRegion region(*state);
    EXPECT_EQ(product_dtype(), at::kFloat);
    EXPECT_EQ(active_policy(), nullptr);
  }
  EXPECT_EQ(product_dtype(), at::kBFloat16);
}

TEST(RegionState, GoesToAnotherThread) {
  const Autocast region(find_policy("torch compute=fp16"));
  const RegionState state;
  at::ScalarType without{};
  at::ScalarType with{};
  std::thread([&] {
    without = product_dtype();
    const RestoreRegion restored(state);
    with = product_dtype();
  }).join();
  EXPECT_EQ(without, at::kFloat);
  EXPECT_EQ(with, at::kHalf);
}

at::ScalarType forward_dtype;
at::ScalarType backward_dtype;
std::string backward_scope;

struct Product : AutocastFunction<Product> {
  static at::Tensor forward_in_region(torch::autograd::AutogradContext* context,
                                      const at::Tensor& x, const at::Tensor& w) {
    context->save_for_backward({x, w});
    forward_dtype = product_dtype();
    return at::mm(x, w);
  }
  static torch::autograd::variable_list backward_in_region(
      torch::autograd::AutogradContext* context, const torch::autograd::variable_list& gradients) {
    backward_dtype = product_dtype();
    backward_scope = tensor::current_scope();
    const auto saved = context->get_saved_variables();
    return {at::mm(gradients[0], saved[1].t()), at::mm(saved[0].t(), gradients[0])};
  }
};

TEST(AutocastFunction, BackwardRunsInTheRegionOfItsForward) {
  const at::Tensor x = at::ones({2, 2});
  const at::Tensor w = at::full({2, 2}, 3.0F).requires_grad_();
  at::Tensor loss;
  {
    const Autocast region(find_policy("torch compute=fp16"));
    const tensor::Scope scope("own");
    loss = Product::apply(x, w).sum();
  }
  loss.backward();
  EXPECT_EQ(forward_dtype, at::kHalf);
  EXPECT_EQ(backward_dtype, at::kHalf);
  EXPECT_EQ(backward_scope, "own");
  EXPECT_EQ(w.grad().scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(w.grad(), at::full({2, 2}, 2.0F)));
  EXPECT_EQ(product_dtype(), at::kFloat);
}

// Whatever region is open where backward() is called, none or a disabled one too.
TEST(AutocastFunction, TheRegionOfTheForwardGoesBeforeTheOneThatIsOpen) {
  struct Case {
    const char* forward;  // null: no region; "": a disabled one
    const char* open;
    at::ScalarType expected;
  };
  for (const auto& [forward, open, expected] :
       {Case{"torch", "torch compute=fp16", at::kBFloat16},
        {"torch compute=fp16", "fp32", at::kHalf},
        {"", "torch", at::kFloat},
        {nullptr, "torch", at::kFloat},
        {"torch scope:own=fp32", "torch compute=fp16", at::kFloat}}) {
    SCOPED_TRACE(::testing::Message() << (forward == nullptr ? "none" : forward) << " | " << open);
    const at::Tensor w = at::ones({2, 2}).requires_grad_();
    at::Tensor loss;
    const auto run = [&] {
      const tensor::Scope scope("own");
      loss = Product::apply(at::ones({2, 2}), w).sum();
    };
    if (forward == nullptr) {
      run();
    } else if (*forward == 0) {
      const Autocast outer(find_policy("torch compute=fp16"));
      const auto disabled = Autocast::disabled();
      run();
    } else {
      const Autocast region(find_policy(forward));
      run();
    }
    const Autocast region(find_policy(open));
    const at::ScalarType before = product_dtype();
    loss.backward();
    EXPECT_EQ(backward_dtype, expected);
    EXPECT_EQ(backward_scope, "own");
    EXPECT_EQ(product_dtype(), before);
  }
}

// As activation checkpointing does: nothing is kept, the forward pass runs again in backward.
using Layer = at::Tensor (*)(const at::Tensor& x, const at::Tensor& w);

// Tensors that `block` casts or takes from the cache.
template <typename Block>
int64_t casts_of(const Block& block) {
  const CastStatistics before = cast_statistics();
  block();
  const CastStatistics after = cast_statistics();
  return after.casts + after.cache_hits - before.casts - before.cache_hits;
}

struct Recomputed : AutocastFunction<Recomputed> {
  static at::Tensor forward_in_region(torch::autograd::AutogradContext* context,
                                      const at::Tensor& x, const at::Tensor& w) {
    context->save_for_backward({x, w});
    at::Tensor y;
    casts.push_back(casts_of([&] { y = layer(x, w); }));
    return y;
  }
  static torch::autograd::variable_list backward_in_region(
      torch::autograd::AutogradContext* context, const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::AutoGradMode recording(true);
    const at::Tensor x = saved[0].detach();
    const at::Tensor w = saved[1].detach().requires_grad_();
    at::Tensor y;
    recomputed_casts.push_back(casts_of([&] { y = layer(x, w); }));
    recomputed_dtype = y.scalar_type();
    y.backward(gradients[0]);
    return {at::Tensor(), w.grad()};
  }
  static inline Layer layer = at::mm;
  static inline std::vector<int64_t> casts;
  static inline std::vector<int64_t> recomputed_casts;
  static inline at::ScalarType recomputed_dtype{};
};

// The second block finds the cast of the first in the cache, its recomputation finds none.
TEST(AutocastFunction, BlocksThatShareAWeightAreRecomputedAsTheyRan) {
  const at::Tensor x = at::full({2, 2}, 1.0F / 3);
  const at::Tensor w = at::full({2, 2}, 1.0F / 7).requires_grad_();
  const std::vector<std::pair<const char*, Layer>> layers = {
      {"mm", [](const at::Tensor& a, const at::Tensor& b) { return at::mm(a, b); }},
      {"linear", [](const at::Tensor& a, const at::Tensor& b) { return at::linear(a, b); }},
      {"conv1d", [](const at::Tensor& a, const at::Tensor& b) {
         return at::conv1d(a.unsqueeze(0), b.unsqueeze(2));
       }}};
  const std::vector<std::pair<const char*, at::ScalarType>> policies = {
      {"torch-fixed compute=bf16", at::kBFloat16},
      {"torch-fixed compute=fp16", at::kHalf},
      {"lean", at::kBFloat16}};
  for (const auto& [policy, dtype] : policies) {
    for (const auto& [name, layer] : layers) {
      for (const int blocks : {2, 3}) {
        SCOPED_TRACE(::testing::Message() << policy << ", " << blocks << " of " << name);
        const auto gradient = [&, &text = policy](const auto& block) {
          w.mutable_grad() = at::Tensor();
          at::Tensor loss;
          {
            const Autocast region(find_policy(text));
            loss = block();
            for (int i = 1; i < blocks; ++i) {
              loss = loss.add(block());
            }
            loss = loss.sum();
          }
          loss.backward();
          return w.grad();
        };
        Recomputed::layer = layer;
        Recomputed::casts.clear();
        Recomputed::recomputed_casts.clear();
        const at::Tensor kept = gradient([&] { return Recomputed::layer(x, w); });
        const at::Tensor recomputed = gradient([&] { return Recomputed::apply(x, w); });
        EXPECT_EQ(Recomputed::recomputed_dtype, dtype);
        EXPECT_TRUE(at::equal(kept, recomputed));
        EXPECT_EQ(Recomputed::casts, std::vector<int64_t>(blocks, 2));
        EXPECT_EQ(Recomputed::recomputed_casts, Recomputed::casts);
      }
    }
  }
}

using tensor::Tensors;

// A block with dropout and a product in a scope of its own.
Tensors block(const Tensors& in, const at::Tensor& w) {
  const at::Tensor hidden = at::dropout(at::gelu(at::linear(in[0], w)), 0.5, /*train=*/true);
  const tensor::Scope scope("inner");
  return {at::linear(hidden, w).add(in[0]), hidden};
}

struct BlocksRun {
  Tensors numbers;
  std::vector<at::ScalarType> dtypes;  // of products, in the order of the calls
};

// Two microbatches of three blocks that share their weight, the loss scaled, in whatever `enter`
// enters; what it returns is left before backward.
template <typename Enter>
BlocksRun run_blocks(bool again, const Enter& enter) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(5);
  const at::Tensor w = at::randn({8, 8}).mul(0.25).requires_grad_();
  const at::Tensor x = at::randn({4, 8}).requires_grad_();
  GradScaler scaler(at::kCPU, {.init_scale = 256});
  BlocksRun result;
  for (int microbatch = 0; microbatch < 2; ++microbatch) {
    at::Tensor loss;
    {
      const auto region = enter();
      const tensor::Scope scope("block");
      Tensors stream = {x};
      for (int i = 0; i < 3; ++i) {
        const auto function = [w](const Tensors& in) { return block(in, w); };
        stream = again ? tensor::recompute(stream, function) : function(stream);
        result.dtypes.push_back(stream[1].scalar_type());
      }
      loss = stream[0].to(at::kFloat).mul(at::randn({4, 8})).sum();
      result.numbers.push_back(loss);
    }
    scaler.scale(loss).backward();
  }
  result.numbers.insert(result.numbers.end(), {w.grad(), x.grad(), at::randn({2})});
  return result;
}

template <typename Enter>
void expect_same_blocks(const char* name, const Enter& enter) {
  const BlocksRun plain = run_blocks(false, enter);
  const BlocksRun again = run_blocks(true, enter);
  EXPECT_EQ(plain.dtypes, again.dtypes) << name;
  for (size_t i = 0; i < plain.numbers.size(); ++i) {
    EXPECT_TRUE(at::isfinite(plain.numbers[i]).all().item<bool>());
    EXPECT_TRUE(at::equal(plain.numbers[i], again.numbers[i])) << name << " " << i;
  }
}

TEST(Recompute, EntersTheRegionOfTheForwardPassAgain) {
  for (const char* policy :
       {"fp32", "torch", "torch compute=fp16", "torch-fixed", "torch-fixed compute=fp16", "lean",
        "torch-fixed scope:*.inner=fp32", "torch scope:block=fp32", "keras"}) {
    expect_same_blocks(policy, [&] { return Autocast(find_policy(policy)); });
  }
  struct Disabled {
    Autocast outer = Autocast(find_policy("torch"));
    Autocast inner = Autocast::disabled();
  };
  expect_same_blocks("disabled", [] { return Disabled(); });
}

TEST(Recompute, EntersLibTorchsAutocastAgain) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    expect_same_blocks(c10::toString(dtype), [&] { return AtAutocast(dtype); });
  }
}

// Whatever is open where backward is called.
TEST(Recompute, TheRegionWhereBackwardIsCalledDoesNotCount) {
  const at::Tensor w = at::ones({2, 2}).requires_grad_();
  std::vector<at::ScalarType> dtypes;
  at::Tensor loss;
  {
    const Autocast region(find_policy("torch compute=fp16"));
    loss = tensor::recompute(at::ones({2, 2}), [&, w](const at::Tensor& in) {
             dtypes.push_back(product_dtype());
             return at::mm(in.exp(), w).exp();
           }).sum();
  }
  const Autocast region(find_policy("torch"));
  loss.backward();
  EXPECT_EQ(dtypes, std::vector<at::ScalarType>({at::kHalf, at::kHalf}));
  EXPECT_EQ(product_dtype(), at::kBFloat16);
}

TEST(AutocastFunction, OutsideOfRegionsBothRunAsTheyAre) {
  const at::Tensor w = at::ones({2, 2}).requires_grad_();
  Product::apply(at::ones({2, 2}), w).sum().backward();
  EXPECT_EQ(forward_dtype, at::kFloat);
  EXPECT_EQ(backward_dtype, at::kFloat);
}

}  // namespace
}  // namespace mantissa::amp
