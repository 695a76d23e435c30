#include "mantissa/monitor/twin.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include <ATen/ops/add.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/monitor/twin_numbers.h"
#include "mantissa/numerics/ulp.h"
#include "mantissa/tensor/scope.h"

namespace mantissa::monitor {
namespace {

using numerics::Format;

// Two layers and a loss that is `factor` times the sum; `dtype` is of the products.
struct Model {
  tensor::ParameterList parameters = {{"first.weight", at::full({8, 8}, 0.25F).requires_grad_()},
                                      {"second.weight", at::full({8, 8}, 0.5F).requires_grad_()}};
  at::Tensor input = at::ones({4, 8});
  double factor = 1;

  at::Tensor loss(at::ScalarType dtype) const {
    at::Tensor x = input;
    {
      const tensor::Scope scope("first");
      x = at::mm(x.to(dtype), parameters[0].value.to(dtype));
    }
    const tensor::Scope scope("second");
    x = at::mm(x.to(dtype), parameters[1].value.to(dtype));
    return x.to(at::kFloat).mul(factor).sum();
  }

  TwinReport report(at::ScalarType dtype, TwinOptions options = {}) const {
    options.format = dtype == at::kHalf ? Format::fp16 : Format::bf16;
    return compare_with_twin(
        ReplayPoint(), parameters, [&] { return loss(dtype); }, [&] { return loss(at::kFloat); },
        options);
  }
};

const TwinRow& row(const TwinReport& report, TwinPlace place, const std::string& operation,
                   const std::string& scope = "") {
  for (const TwinRow& each : report.rows) {
    if (each.place == place && each.operation == operation && each.scope == scope) {
      return each;
    }
  }
  ADD_FAILURE() << "no row of " << operation << " in " << scope;
  static const TwinRow none;
  return none;
}

TEST(Twin, OfAStepThatIsExactHasNoError) {
  const TwinReport report = Model().report(at::kHalf);
  EXPECT_EQ(report.unmatched, 0);
  EXPECT_FALSE(report.first);
  for (const TwinRow& each : report.rows) {
    EXPECT_EQ(each.relative_error, 0) << each.operation;
    EXPECT_EQ(each.max_ulps, 0) << each.operation;
    EXPECT_DOUBLE_EQ(each.cosine, 1) << each.operation;
  }
  EXPECT_EQ(row(report, TwinPlace::forward, "aten::mm", "first").format, "fp16");
  EXPECT_EQ(row(report, TwinPlace::backward, "MmBackward0", "second").format, "fp16");
  EXPECT_EQ(row(report, TwinPlace::parameter, "second.weight").format, "fp32");
}

// One rounding of the input and one of the result: each half an ulp, 2^-8 of the number.
TEST(Twin, ErrorsOfRoundingAreThoseOfTheFormat) {
  Model model;
  model.input = at::rand({4, 8}).add(1);
  const TwinReport report = model.report(at::kBFloat16);
  const TwinRow& first = row(report, TwinPlace::forward, "aten::mm", "first");
  EXPECT_GT(first.relative_error, 0);
  EXPECT_LE(first.relative_error, 0x1p-7);
  EXPECT_LE(first.max_ulps, 2);
  EXPECT_GE(first.max_ulps, first.mean_ulps);
  ASSERT_TRUE(first.own_error && first.bound);
  EXPECT_LE(*first.own_error, *first.bound);
  EXPECT_LE(*first.bound, 0x1p-7);
  EXPECT_GT(first.cosine, 0.9999);
  const TwinRow& second = row(report, TwinPlace::forward, "aten::mm", "second");
  EXPECT_EQ(second.input_error, first.relative_error);
  EXPECT_FALSE(report.first);
}

TEST(Twin, GradientsAreComparedWithoutTheScale) {
  const TwinReport report = Model().report(at::kHalf, {.scale = 1024});
  EXPECT_EQ(report.unmatched, 0);
  for (const TwinRow& each : report.rows) {
    EXPECT_EQ(each.relative_error, 0) << each.operation;
  }
}

// 200 * 8 * 200 * 0.25 is beyond 65504.
TEST(Twin, TheFirstToDivergeIsTheFirstThatIsNotFinite) {
  Model model;
  model.parameters[1].value.detach().fill_(1e4);
  const TwinReport report = model.report(at::kHalf);
  ASSERT_TRUE(report.first);
  EXPECT_EQ(report.first->kind, Divergence::nonfinite);
  EXPECT_EQ(report.rows[report.first->row].operation, "aten::mm");
  EXPECT_EQ(report.rows[report.first->row].scope, "second");
  EXPECT_EQ(report.first->why, "32 numbers are not finite where FP32 is");
  EXPECT_TRUE(std::isinf(report.rows[report.first->row].relative_error));
}

// 1e-9 is below half of 2^-24.
TEST(Twin, AGradientThatUnderflowsIsNamedAndAScaleCuresIt) {
  const Model model{.factor = 1e-9};
  const TwinReport report = model.report(at::kHalf);
  ASSERT_TRUE(report.first);
  EXPECT_EQ(report.first->kind, Divergence::underflow);
  EXPECT_EQ(report.rows[report.first->row].operation, "MmBackward0");
  EXPECT_EQ(report.rows[report.first->row].scope, "second");
  EXPECT_EQ(report.first->why, "100 % of its numbers are 0 where FP32 is not");
  ASSERT_EQ(dead_gradients(report).size(), 2U);
  EXPECT_EQ(dead_gradients(report)[0].operation, "first.weight");
  EXPECT_TRUE(dead_gradients(model.report(at::kHalf, {.scale = 0x1p24})).empty());
}

// Logits of 300 carry errors of 1/4 in BF16, and exp makes factors of them.
TEST(Twin, AnErrorThatGrowsIsNamedWhereItPassesTheLimit) {
  const tensor::ParameterList parameters = {{"w", at::full({8, 8}, 37.53F).requires_grad_()}};
  at::manual_seed(67280421310721);  // of a generator that nothing has seeded
  const at::Tensor x = at::rand({8, 8}).add(1);
  const auto loss = [&](at::ScalarType dtype) {
    const tensor::Scope scope("attention");
    const at::Tensor logits = at::mm(x.to(dtype), parameters[0].value.mul(x).to(dtype));
    return at::softmax(logits, -1, at::kFloat).pow(2).sum();
  };
  const TwinReport report = compare_with_twin(
      ReplayPoint(), parameters, [&] { return loss(at::kBFloat16); },
      [&] { return loss(at::kFloat); });
  ASSERT_TRUE(report.first);
  EXPECT_EQ(report.first->kind, Divergence::error);
  EXPECT_EQ(report.rows[report.first->row].operation, "aten::softmax");
  const TwinRow& logits = row(report, TwinPlace::forward, "aten::mm", "attention");
  EXPECT_LE(logits.relative_error, 0x1p-7);
  EXPECT_EQ(report.rows[report.first->row].input_error, logits.relative_error);
}

TEST(Twin, LeavesGradientsAsTheyWere) {
  const Model model;
  const at::Tensor gradient = at::full({8, 8}, 7.0F);
  model.parameters[0].value.mutable_grad() = gradient;
  (void)model.report(at::kHalf);
  EXPECT_TRUE(model.parameters[0].value.grad().is_same(gradient));
  EXPECT_FALSE(model.parameters[1].value.grad().defined());
}

TEST(Twin, CountsWhatOnlyOneOfTheStepsHas) {
  const Model model;
  const TwinReport report = compare_with_twin(
      ReplayPoint(), model.parameters, [&] { return model.loss(at::kFloat).add(1); },
      [&] { return model.loss(at::kFloat); });
  EXPECT_EQ(report.unmatched, 2);  // the sum and its node
}

// The relu is in one of the steps only, so nobody knows how wrong its result is.
TEST(Twin, WhatHasNoPartnerHandsNoErrorOn) {
  const Model model;
  const at::Tensor x = at::rand({4, 8}).add(1);
  const auto loss = [&](at::ScalarType dtype, bool has_relu) {
    const at::Tensor product = at::mm(x.to(dtype), model.parameters[0].value.to(dtype));
    const at::Tensor positive = has_relu ? at::relu(product) : product;
    const at::Tensor root = at::sqrt(positive);
    return at::add(root, at::mul(positive, product)).to(at::kFloat).sum();
  };
  const auto report = [&](bool has_relu) {
    return compare_with_twin(
        ReplayPoint(), model.parameters, [&] { return loss(at::kBFloat16, has_relu); },
        [&] { return loss(at::kFloat, false); });
  };
  const TwinReport with = report(true);
  EXPECT_EQ(with.unmatched, 2);  // the relu and its node
  EXPECT_GT(row(with, TwinPlace::forward, "aten::mm").relative_error, 0);
  EXPECT_EQ(row(with, TwinPlace::forward, "aten::sqrt").input_error, std::nullopt);
  EXPECT_EQ(row(with, TwinPlace::forward, "aten::mul").input_error, std::nullopt)
      << "the other factor alone has a known error";
  EXPECT_EQ(row(with, TwinPlace::forward, "aten::add").input_error,
            std::max(row(with, TwinPlace::forward, "aten::sqrt").relative_error,
                     row(with, TwinPlace::forward, "aten::mul").relative_error))
      << "what follows is known again";
  const TwinReport without = report(false);
  EXPECT_EQ(row(without, TwinPlace::forward, "aten::sqrt").input_error,
            row(without, TwinPlace::forward, "aten::mm").relative_error);
}

TEST(Twin, RefusesWhatNoStepHas) {
  const auto none = [] { return at::ones({2}); };
  EXPECT_THROW((void)compare_with_twin(ReplayPoint(), {}, none, none), InvalidArgument);
  const auto one = [] { return at::ones({}).requires_grad_(); };
  EXPECT_THROW((void)compare_with_twin(ReplayPoint(), {}, one, one, {.scale = 0}), InvalidArgument);
}

TEST(TwinNumbers, UlpsAreThoseOfNumerics) {
  const at::Tensor reference = at::tensor({0.0, 1e-9, 6e-5, 0.1, -1.5, 65504.0, 1e5}, at::kDouble);
  for (const Format format : {Format::fp16, Format::bf16}) {
    for (int64_t i = 0; i < reference.numel(); ++i) {
      const double at = reference[i].item<double>();
      TwinRow numbers;
      compare_values(numbers, reference[i].add(1), reference[i], format);
      EXPECT_DOUBLE_EQ(numbers.max_ulps, numerics::error_in_ulps(format, at + 1, at)) << at;
    }
  }
}

TEST(TwinNumbers, ZeroAgainstZeroHasNoError) {
  TwinRow numbers;
  compare_values(numbers, at::full({3}, 0.0), at::full({3}, 0.0), Format::fp16);
  EXPECT_EQ(numbers.relative_error, 0);
  EXPECT_EQ(numbers.cosine, 1);
  compare_values(numbers, at::ones({3}), at::full({3}, 0.0), Format::fp16);
  EXPECT_EQ(numbers.relative_error, std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace mantissa::monitor
