#include "mantissa/monitor/nonfinite_origin.h"

#include <cmath>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log.h>
#include <ATen/ops/masked_fill.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
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
  const OriginInput zero = {"self", "fp32", 0, true, false, "aten::zeros", "head"};
  EXPECT_EQ(origin, (NonfiniteOrigin{"aten::log",
                                     "",
                                     "head",
                                     false,
                                     -std::numeric_limits<double>::infinity(),
                                     "fp32",
                                     {zero}}));
}

TEST(NonfiniteOrigin, AnInfinityThatIsGivenIsNotBlamed) {
  const NonfiniteOrigin origin = find_nonfinite_origin([] {
    const at::Tensor mask = at::tensor({0, 1}).to(at::kBool);
    (void)at::softmax(at::masked_fill(at::ones({2}), mask, -kInf), -1);
    (void)at::full({2}, kInf);
  });
  EXPECT_EQ(origin.operation, "");
}

// What a value came from, through views and casts.
TEST(NonfiniteOrigin, NamesTheInputAndWhatMadeIt) {
  const tensor::ParameterList parameters = {{"out.weight", at::full({64, 2}, 3.0F)}};
  const auto origin_of = [&](const std::function<void(const at::Tensor&)>& last) {
    return find_nonfinite_origin(
        [&] {
          at::Tensor x;
          {
            const tensor::Scope scope("query");
            x = at::mm(at::ones({64, 64}), at::ones({64, 64}));  // 64 each
          }
          const tensor::Scope scope("logits");
          last(x);
        },
        parameters);
  };
  EXPECT_EQ(describe(origin_of([](const at::Tensor& x) {
              const at::Tensor half = x.to(at::kHalf);
              (void)at::mm(half, half.t());  // 64 * 64 * 64
            })),
            "inf from aten::mm in fp16 (logits), whose self reaches 64, from aten::mm (query)");
  EXPECT_EQ(describe(origin_of([&](const at::Tensor& x) {
              (void)at::mm(x.mul(8).to(at::kHalf), parameters[0].value.to(at::kHalf));
            })),
            "inf from aten::mm in fp16 (logits), whose self reaches 512, from aten::mul (logits)");
  EXPECT_EQ(
      describe(
          origin_of([&](const at::Tensor& x) { (void)at::mm(x, parameters[0].value.mul(1e37F)); })),
      "inf from aten::mm in fp32 (logits), whose mat2 reaches 3e+37, from aten::mul (logits)");
  EXPECT_EQ(describe(origin_of([&](const at::Tensor& x) {
              (void)x.narrow(1, 0, 2).div(parameters[0].value.sub(3));
            })),
            "inf from aten::div in fp32 (logits), whose other is 0, from aten::sub (logits)");
  EXPECT_EQ(describe(origin_of(
                [&](const at::Tensor&) { parameters[0].value.t().to(at::kHalf).mul(3e4).add(1); })),
            "inf from aten::mul in fp16 (logits), whose other is 30000");
  EXPECT_EQ(describe(origin_of([&](const at::Tensor&) {
              parameters[0].value.t().to(at::kHalf).exp2().exp2().exp2();
            })),
            "inf from aten::exp2 in fp16 (logits), whose self is 256, from aten::exp2 (logits)");
  EXPECT_EQ(describe(origin_of([&](const at::Tensor&) { parameters[0].value.t().pow(100); })),
            "inf from aten::pow in fp32 (logits), whose exponent is 100");
}

TEST(NonfiniteOrigin, NamesAParameterAndWhatTheStepWasGiven) {
  const tensor::ParameterList parameters = {{"out.weight", at::full({2}, 1e5F)}};
  EXPECT_EQ(describe(find_nonfinite_origin(
                [&] {
                  (void)parameters[0].value.view({1, 2}).to(at::kHalf);
                },
                parameters)),
            "inf from aten::copy_ within aten::to in fp16 (the top level), whose src is 100000, "
            "parameter out.weight");
  const at::Tensor given = at::full({2}, 300, at::kHalf);
  EXPECT_EQ(describe(find_nonfinite_origin([&] { (void)given.mul(given); })),
            "inf from aten::mul in fp16 (the top level), whose self is 300, given to the step");
}

// The first of two that are not finite is not the largest.
TEST(NonfiniteOrigin, OfAPointwiseOperationTheValueIsThatOfThePlace) {
  const NonfiniteOrigin origin = find_nonfinite_origin([] {
    (void)at::tensor({1e6F, -1.0F, -2.0F}).sqrt();
  });
  EXPECT_EQ(origin.inputs[0].value, -1);
  EXPECT_TRUE(std::isnan(origin.value));
}

// Masks are made of infinities; a row of them alone is not what they are for.
TEST(NonfiniteOrigin, NamesWhatMakesNanOfInfinities) {
  const at::Tensor all = at::full({4}, -kInf);
  const auto nan_from = [](const std::function<void()>& step) {
    const NonfiniteOrigin origin = find_nonfinite_origin([&] {
      const tensor::Scope scope("attention");
      step();
    });
    EXPECT_TRUE(std::isnan(origin.value)) << origin.operation;
    EXPECT_FALSE(origin.is_given);
    EXPECT_EQ(origin.scope, "attention");
    return origin.within.empty() ? origin.operation : origin.within;
  };
  EXPECT_EQ(nan_from([&] { (void)at::softmax(all, -1).sum(); }), "aten::softmax");
  EXPECT_EQ(nan_from([&] { (void)all.sub(all).exp(); }), "aten::sub");
  EXPECT_EQ(nan_from([&] { (void)at::zeros({4}).mul(-kInf); }), "aten::mul");
}

// The product with a small FP16 number is FP32, and so is its gradient until the engine casts it.
TEST(NonfiniteOrigin, TheEnginesCastOfAGradientIsPartOfItsNode) {
  const at::Tensor variance = at::full({1}, 1e-3, at::kHalf).requires_grad_();
  const NonfiniteOrigin origin = find_nonfinite_origin([&] {
    const tensor::Scope scope("loss");
    at::ones({1}).div(variance).sum().backward();
  });
  EXPECT_EQ(origin.within, "DivBackward0");
  EXPECT_EQ(origin.scope, "loss");
  EXPECT_TRUE(origin.in_backward);
}

// Kernels that compute in FP32 end with a cast of their own.
TEST(NonfiniteOrigin, ARoundedResultIsNoCastOfAnOperand) {
  const at::Tensor cells = at::full({2000, 4}, 40, at::kHalf);
  const at::Tensor index = at::zeros({2000}, at::kLong);
  const NonfiniteOrigin origin = find_nonfinite_origin([&] {
    (void)at::zeros({2, 4}, at::kHalf).index_add(0, index, cells);
  });
  EXPECT_EQ(origin.within, "aten::index_add");
  EXPECT_NE(origin.operation, "aten::copy_");
}

TEST(NonfiniteOrigin, WhatTheCodeReplacesIsNone) {
  const at::Tensor x = at::tensor({0.0F, 4.0F}).requires_grad_();
  const at::Tensor hidden = at::ones({2}, at::kBool);
  const auto origin_of = [](const auto& step) { return find_nonfinite_origin(step).operation; };
  EXPECT_EQ(origin_of([&] {
              const at::Tensor bucket = x.detach().log().to(at::kLong).clamp_min(0);
              x.mul(bucket).sum().backward();
            }),
            "");
  EXPECT_EQ(
      origin_of([&] { x.masked_fill(hidden, -kInf).softmax(-1).nan_to_num().sum().backward(); }),
      "");
  EXPECT_EQ(origin_of([&] { at::where(x.gt(0), x.log(), at::zeros({2})).sum().backward(); }),
            "aten::log")
      << "the gradient is NaN all the same";
  EXPECT_EQ(origin_of([&] { x.detach().log().exp().sum(); }), "aten::log")
      << "exp(-inf) is 0: used, not replaced";
  EXPECT_EQ(origin_of([&] { (void)x.detach().log(); }), "aten::log") << "the step ends with it";
}

TEST(NonfiniteOrigin, NamesWhatFirstGetsAValueThatTheStepWasGiven) {
  const at::Tensor record = at::tensor({1.0F, std::numeric_limits<float>::quiet_NaN()});
  const NonfiniteOrigin origin = find_nonfinite_origin([&] {
    const tensor::Scope scope("encoder");
    (void)at::ones({2}).mul(record).sum();
  });
  EXPECT_TRUE(origin.is_given);
  EXPECT_EQ(origin.operation, "aten::mul");
  EXPECT_EQ(origin.scope, "encoder");
  EXPECT_THAT(describe(origin), ::testing::StartsWith("nan given to aten::mul in fp32 (encoder)"));

  const at::Tensor weight = at::full({1, 2}, kInf).requires_grad_();
  const NonfiniteOrigin of_weight = find_nonfinite_origin(
      [&] {
        at::linear(at::ones({1, 2}), weight).sum().backward();
      },
      {{"head.weight", weight}});
  EXPECT_TRUE(of_weight.is_given);
  EXPECT_EQ(of_weight.operation, "aten::linear");
  EXPECT_THAT(describe(of_weight), ::testing::HasSubstr("parameter head.weight"));

  const double rate = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(find_nonfinite_origin([&] { at::ones({2}).add_(at::ones({2}), rate); }).operation,
            "aten::add_");
}

// Missing values, and the mask that keeps them out.
TEST(NonfiniteOrigin, AGivenValueThatTheStepMasksIsNoFault) {
  const at::Tensor record = at::tensor({1.0F, std::numeric_limits<float>::quiet_NaN()});
  const at::Tensor mask = at::tensor({0.0F, -kInf});
  const at::Tensor weight = at::ones({2}).requires_grad_();
  EXPECT_EQ(find_nonfinite_origin([&] {
              const at::Tensor known = at::where(record.isnan(), at::zeros({2}), record);
              at::softmax(known.mul(weight).add(mask), -1)[0].backward();
            }).operation,
            "");
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

// 1024 times 8 * 8 is 65536, beyond FP16; in each form the outermost call is that of the user.
TEST(NonfiniteOrigin, NamesEveryKindOfProductThatOverflows) {
  const at::Tensor a = at::full({2, 1024}, 8, at::kHalf);
  using Step = std::function<void()>;
  const std::vector<std::pair<std::string, Step>> products = {
      {"aten::mm", [&] { (void)at::mm(a, a.t()); }},
      {"aten::matmul", [&] { (void)at::matmul(a, a[0]); }},
      {"aten::linear", [&] { (void)at::linear(a, a, at::ones({2}, at::kHalf)); }},
      {"aten::bmm", [&] { (void)at::bmm(a.unsqueeze(0), a.t().unsqueeze(0)); }},
      {"aten::baddbmm",
       [&] {
         (void)at::baddbmm(at::ones({1, 2, 2}, at::kHalf), a.unsqueeze(0), a.t().unsqueeze(0));
       }},
      {"aten::conv1d",
       [&] {
         (void)at::conv1d(a.view({2, 64, 16}), a.narrow(0, 0, 1).view({1, 64, 16}));
       }},
      {"aten::mul", [&] { (void)a.mul(1e4); }},
      {"aten::add_",
       [&] { (void)at::full({2}, 6e4, at::kHalf).add_(at::full({2}, 6e4, at::kHalf)); }},
      {"aten::sum", [&] { (void)a.mul(16).sum(); }},
      {"aten::cumsum", [&] { (void)a.mul(16).cumsum(1); }}};
  for (const auto& [name, step] : products) {
    const NonfiniteOrigin origin = find_nonfinite_origin(step);
    EXPECT_EQ(origin.within.empty() ? origin.operation : origin.within, name);
    EXPECT_EQ(origin.value, kInf) << name;
    EXPECT_FALSE(origin.in_backward) << name;
  }
}

// Each is finite where its derivative is not. A value that a mask hides afterwards is one of the
// forward pass.
TEST(NonfiniteOrigin, NamesTheNodeOfEveryInfiniteDerivative) {
  struct Case {
    const char* node;  // "": none
    float at;
    std::function<at::Tensor(const at::Tensor& x)> loss;
  };
  const std::vector<Case> cases = {
      {"", 0, [](const at::Tensor& x) { return x.norm(); }},
      {"", 0, [](const at::Tensor& x) { return x.std(); }},
      {"", 0, [](const at::Tensor& x) { return x.abs().sum(); }},
      {"SqrtBackward0", 0, [](const at::Tensor& x) { return x.pow(2).sum().sqrt(); }},
      {"SqrtBackward0", 0,
       [](const at::Tensor& x) { return at::where(x.gt(0), x.sqrt(), at::zeros({3})).sum(); }},
      {"PowBackward0", 0, [](const at::Tensor& x) { return x.pow(0.5).sum(); }},
      {"AcosBackward0", 1, [](const at::Tensor& x) { return x.acos().sum(); }},
      {"AsinBackward0", -1, [](const at::Tensor& x) { return x.asin().sum(); }}};
  for (const Case& each : cases) {
    SCOPED_TRACE(::testing::Message() << each.node << " " << (&each - cases.data()));
    const at::Tensor x = at::full({3}, each.at).requires_grad_();
    const NonfiniteOrigin origin = find_nonfinite_origin([&] {
      at::Tensor loss;
      {
        const tensor::Scope scope("distance");
        loss = each.loss(x);
      }
      loss.backward();
    });
    EXPECT_EQ(origin.within, each.node);
    EXPECT_EQ(origin.scope, *each.node == 0 ? "" : "distance");
    EXPECT_EQ(origin.in_backward, *each.node != 0);
  }
  const NonfiniteOrigin hidden = find_nonfinite_origin([] {
    const at::Tensor x = at::tensor({-1.0F, 4.0F}).requires_grad_();
    at::where(x.gt(0), x.sqrt(), at::zeros({2})).sum().backward();
  });
  // The norms are as they should be; what comes after them is found.
  const NonfiniteOrigin later = find_nonfinite_origin([] {
    const at::Tensor x = at::zeros({3}).requires_grad_();
    x.norm().add(x.std()).add(x.pow(2).sum().sqrt()).backward();
  });
  EXPECT_EQ(later.within, "SqrtBackward0");
  EXPECT_EQ(hidden.operation, "aten::sqrt");
  EXPECT_FALSE(hidden.in_backward);
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
