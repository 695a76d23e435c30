#include "mantissa/amp/region_state.h"

#include <thread>

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "mantissa/amp/autocast.h"
#include "mantissa/amp/autocast_function.h"
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

// As activation checkpointing does: nothing is kept, the forward pass runs again in backward.
struct Recomputed : AutocastFunction<Recomputed> {
  static at::Tensor forward_in_region(torch::autograd::AutogradContext* context,
                                      const at::Tensor& x, const at::Tensor& w) {
    context->save_for_backward({x, w});
    return at::mm(x, w);
  }
  static torch::autograd::variable_list backward_in_region(
      torch::autograd::AutogradContext* context, const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::AutoGradMode recording(true);
    const at::Tensor x = saved[0].detach();
    const at::Tensor w = saved[1].detach().requires_grad_();
    const at::Tensor y = at::mm(x, w);
    recomputed_dtype = y.scalar_type();
    y.backward(gradients[0]);
    return {at::Tensor(), w.grad()};
  }
  static inline at::ScalarType recomputed_dtype{};
};

// The second block finds the cast of the first in the cache, its recomputation finds none.
TEST(AutocastFunction, BlocksThatShareAWeightAreRecomputedAsTheyRan) {
  const at::Tensor x = at::full({2, 2}, 1.0F / 3);
  const at::Tensor w = at::full({2, 2}, 1.0F / 7).requires_grad_();
  const auto gradient = [&](const auto& block) {
    w.mutable_grad() = at::Tensor();
    at::Tensor loss;
    {
      const Autocast region(find_policy("torch-fixed compute=bf16"));
      loss = block().add(block()).sum();
    }
    loss.backward();
    return w.grad();
  };
  const at::Tensor kept = gradient([&] { return at::mm(x, w); });
  const at::Tensor recomputed = gradient([&] { return Recomputed::apply(x, w); });
  EXPECT_EQ(Recomputed::recomputed_dtype, at::kBFloat16);
  EXPECT_TRUE(at::equal(kept, recomputed));
}

TEST(AutocastFunction, OutsideOfRegionsBothRunAsTheyAre) {
  const at::Tensor w = at::ones({2, 2}).requires_grad_();
  Product::apply(at::ones({2, 2}), w).sum().backward();
  EXPECT_EQ(forward_dtype, at::kFloat);
  EXPECT_EQ(backward_dtype, at::kFloat);
}

}  // namespace
}  // namespace mantissa::amp
