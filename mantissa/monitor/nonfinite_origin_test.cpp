#include "mantissa/monitor/nonfinite_origin.h"

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

#include "mantissa/tensor/scope.h"

namespace mantissa::monitor {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(NonfiniteOrigin, IsNoneInFiniteWork) {
  EXPECT_EQ(find_nonfinite_origin([] {
              (void)at::mm(at::ones({2, 2}), at::ones({2, 2})).log().sum();
            }),
            NonfiniteOrigin());
}

TEST(NonfiniteOrigin, IsTheFirstOperationWithItsScopeAndValue) {
  const NonfiniteOrigin origin = find_nonfinite_origin([] {
    const tensor::Scope scope("head");
    const at::Tensor x = at::log(at::zeros({2}));  // -inf
    (void)x.sub(x);                                // NaN, from infinities
  });
  EXPECT_EQ(origin, (NonfiniteOrigin{"aten::log", "", "head", false,
                                     -std::numeric_limits<double>::infinity()}));
}

TEST(NonfiniteOrigin, AnInfinityThatIsGivenIsNotBlamed) {
  const NonfiniteOrigin origin = find_nonfinite_origin([] {
    const at::Tensor mask = at::tensor({0, 1}).to(at::kBool);
    (void)at::softmax(at::masked_fill(at::ones({2}), mask, -kInf), -1);
    (void)at::full({2}, kInf);
  });
  EXPECT_EQ(origin.operation, "");
}

// What memory held before it was written is no input.
TEST(NonfiniteOrigin, ADestinationIsNoInput) {
  at::Tensor old = at::full({1, 1}, kInf);
  const at::Tensor large = at::full({1, 1}, 1e30F);
  EXPECT_EQ(find_nonfinite_origin([&] { (void)at::mm_out(old, large, large); }).operation,
            "aten::mm");
  EXPECT_EQ(find_nonfinite_origin([&] { old.fill_(1).mul_(1e30F).mul_(1e30F); }).operation,
            "aten::mul_");
}

// 300 * 300 is beyond 65504; 70000 is so before any product.
TEST(NonfiniteOrigin, TellsAProductFromTheCastOfItsOperand) {
  const auto product = [](float a) {
    return find_nonfinite_origin([&] {
      const at::Tensor x = at::full({1, 1}, a).to(at::kHalf);
      (void)at::mm(x, x);
    });
  };
  EXPECT_EQ(product(300).operation, "aten::mm");
  EXPECT_EQ(product(70000).operation, "aten::copy_");
  EXPECT_EQ(product(70000).within, "aten::to");
}

TEST(NonfiniteOrigin, AGradientHasTheScopeOfItsForwardOperation) {
  const at::Tensor weight = at::zeros({1}).requires_grad_();
  const NonfiniteOrigin origin = find_nonfinite_origin([&] {
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
  });
  EXPECT_TRUE(origin.in_backward);
  EXPECT_EQ(origin.scope, "norm");
  EXPECT_EQ(origin.operation, "aten::div");
  EXPECT_EQ(origin.within, "SqrtBackward0");
}

}  // namespace
}  // namespace mantissa::monitor
