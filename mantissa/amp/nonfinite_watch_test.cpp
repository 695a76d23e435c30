#include "mantissa/amp/nonfinite_watch.h"

#include <cmath>
#include <limits>

#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log.h>
#include <ATen/ops/masked_fill.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "mantissa/amp/autocast.h"
#include "mantissa/base/error.h"
#include "mantissa/tensor/scope.h"

namespace mantissa::amp {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(NonfiniteWatch, SeesNothingInFiniteWork) {
  const NonfiniteWatch watch;
  (void)at::mm(at::ones({2, 2}), at::ones({2, 2})).log().sum();
  EXPECT_EQ(watch.origin(), NonfiniteOrigin());
}

TEST(NonfiniteWatch, NamesTheFirstOperationItsScopeAndValue) {
  const NonfiniteWatch watch;
  {
    const tensor::Scope scope("head");
    const at::Tensor x = at::log(at::zeros({2}));  // -inf
    (void)x.sub(x);                                // NaN, from infinities
  }
  EXPECT_EQ(watch.origin().operation, "log");
  EXPECT_EQ(watch.origin().within, "");
  EXPECT_EQ(watch.origin().scope, "head");
  EXPECT_FALSE(watch.origin().in_backward);
  EXPECT_EQ(watch.origin().value, -std::numeric_limits<double>::infinity());
}

TEST(NonfiniteWatch, AnInfinityThatIsGivenIsNotBlamed) {
  const NonfiniteWatch watch;
  const at::Tensor mask = at::tensor({0, 1}).to(at::kBool);
  (void)at::softmax(at::masked_fill(at::ones({2}), mask, -kInf), -1);
  (void)at::full({2}, kInf);
  EXPECT_EQ(watch.origin().operation, "");
}

// What memory held before it was written is no input.
TEST(NonfiniteWatch, ADestinationIsNoInput) {
  const NonfiniteWatch watch;
  at::Tensor old = at::full({1, 1}, kInf);
  (void)at::mm_out(old, at::full({1, 1}, 1e30F), at::full({1, 1}, 1e30F));
  EXPECT_EQ(watch.origin().operation, "mm");
}

// 300 * 300 is beyond 65504; 70000 is so before any product.
TEST(NonfiniteWatch, TellsAProductFromTheCastOfItsOperand) {
  const Policy policy = find_policy("torch-cpu compute=fp16");
  {
    const NonfiniteWatch watch;
    const Autocast region(policy);
    (void)at::mm(at::full({1, 1}, 300.0F), at::full({1, 1}, 300.0F));
    EXPECT_EQ(watch.origin().operation, "mm");
  }
  const NonfiniteWatch watch;
  const Autocast region(policy);
  (void)at::mm(at::full({1, 1}, 70000.0F), at::full({1, 1}, 1.0F));
  EXPECT_EQ(watch.origin().operation, "copy_");
  EXPECT_EQ(watch.origin().within, "mm");
}

TEST(NonfiniteWatch, AGradientHasTheScopeOfItsForwardOperation) {
  const at::Tensor weight = at::zeros({1}).requires_grad_();
  const NonfiniteWatch watch;
  at::Tensor loss;
  {
    const tensor::Scope scope("norm");
    loss = weight.pow(2).sum().sqrt();  // its slope at 0 is infinite
  }
  {
    const tensor::Scope scope("later");
    loss = loss.mul(2);
  }
  loss.backward();
  EXPECT_TRUE(watch.origin().in_backward);
  EXPECT_EQ(watch.origin().scope, "norm");
  EXPECT_EQ(watch.origin().operation, "div");
  EXPECT_EQ(watch.origin().within, "SqrtBackward0");
}

TEST(NonfiniteWatch, IsOneAThreadAtATime) {
  const NonfiniteWatch watch;
  EXPECT_THROW(NonfiniteWatch(), InvalidArgument);
  (void)at::log(at::zeros({1}));
  EXPECT_EQ(watch.origin().operation, "log");  // the first goes on
}

}  // namespace
}  // namespace mantissa::amp
