#include "mantissa/monitor/lint.h"

#include <cmath>
#include <functional>
#include <limits>
#include <ostream>
#include <set>
#include <utility>

#include <gmock/gmock.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/binary_cross_entropy.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/fft_fft.h>
#include <ATen/ops/fft_rfft.h>
#include <ATen/ops/fft_rfft2.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/index_put.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stft.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "mantissa/base/error.h"
#include "mantissa/tensor/scope.h"

namespace mantissa::monitor {

// For failure messages of GoogleTest.
void PrintTo(const Finding& finding, std::ostream* out) { *out << to_string(finding); }

namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr double kTiny = 1e-8;  // below half of fp16's smallest number, 2^-25

at::Tensor half(at::IntArrayRef sizes) { return at::ones(sizes, at::kHalf); }
at::Tensor bfloat(at::IntArrayRef sizes) { return at::ones(sizes, at::kBFloat16); }

// Findings of one rule.
std::vector<Finding> found(const std::string& rule, const std::function<void()>& step,
                           const LintOptions& options = {}) {
  std::vector<Finding> result;
  for (const Finding& finding : lint(step, options).findings) {
    if (finding.rule == rule) {
      result.push_back(finding);
    }
  }
  return result;
}

void expect_one(const std::string& rule, Severity severity, const std::string& operation,
                const std::string& format, const std::string& value,
                const std::function<void()>& step) {
  const auto findings = found(rule, step);
  ASSERT_THAT(findings, SizeIs(1)) << operation;
  EXPECT_EQ(findings[0].severity, severity);
  EXPECT_EQ(findings[0].operation, operation);
  EXPECT_EQ(findings[0].format, format);
  EXPECT_EQ(findings[0].value, value);
  EXPECT_FALSE(findings[0].consequence.empty());
  EXPECT_FALSE(findings[0].remedy.empty());
}

TEST(LintConstant, AnEpsThatIsZeroInFp16) {
  const auto expect = [](const std::string& operation, const std::function<void()>& step) {
    expect_one("constant", Severity::hazard, operation, "fp16", "1e-08", step);
  };
  expect("aten::add", [] { half({4}).add(kTiny); });
  expect("aten::add_", [] { half({4}).add_(kTiny); });
  expect("aten::sub", [] { half({4}).sub(kTiny); });
  expect("aten::clamp", [] { half({4}).clamp(kTiny); });
  expect("aten::clamp_min", [] { half({4}).clamp_min(kTiny); });
  expect("aten::gt", [] { half({4}).gt(kTiny); });
  expect("aten::where", [] { at::where(half({4}).gt(0), half({4}), kTiny); });
  expect("aten::full", [] { at::full({4}, kTiny, at::kHalf); });
  expect("aten::fill_", [] { half({4}).fill_(kTiny); });
  // A tensor of one number is a constant too.
  expect("aten::add", [] { half({4}).add(at::scalar_tensor(kTiny, at::kDouble)); });
}

// What the rule says of them is so.
TEST(LintConstant, SuchAnEpsChangesNothing) {
  const at::Tensor x = at::tensor({0.0, 6e-8, 1.0}).to(at::kHalf);
  EXPECT_TRUE(x.add(kTiny).equal(x));
  EXPECT_TRUE(x.clamp_min(kTiny).equal(x));
  EXPECT_FALSE(x.gt(kTiny)[0].item<bool>());
  EXPECT_EQ(at::full({1}, kTiny, at::kHalf).item<float>(), 0);
  // A product has an effect: 8e-8 rounds to 2^-24. So it is not in the list.
  EXPECT_EQ(at::full({1}, 8.0, at::kHalf).mul(kTiny).item<float>(), std::ldexp(1.0F, -24));
}

TEST(LintConstant, NotWhereTheFormatHoldsIt) {
  EXPECT_THAT(found("constant",
                    [] {
                      bfloat({4}).add(kTiny);
                      at::ones({4}).add(kTiny);
                      half({4}).add(1e-4);
                      half({4}).add(0);
                      half({4}).mul(kTiny);
                      half({4}).div(1e9);
                      half({4}).clamp(0, 1);
                      half({4}).to(at::kFloat).add(kTiny).to(at::kHalf);
                    }),
              IsEmpty());
}

TEST(LintConstant, AMaskBeyondFp16) {
  const at::Tensor mask = half({4}).gt(0);
  expect_one("constant", Severity::hazard, "aten::add", "fp16", "-1e+09",
             [] { half({4}).add(-1e9); });
  expect_one("constant", Severity::hazard, "aten::where", "fp16", "-1e+09",
             [&] { at::where(mask, half({4}), -1e9); });
  expect_one("constant", Severity::hazard, "aten::add", "fp16", "-1e+10",
             [] { half({4}).add(at::scalar_tensor(-1e10, at::kFloat)); });
  expect_one("constant", Severity::hazard, "aten::sub", "fp16", "65520",
             [] { half({4}).sub(65520); });
  expect_one("constant", Severity::hazard, "aten::add", "fp16", "-1e+06",
             [] { half({4}).add(-1000000); });
  expect_one("constant", Severity::hazard, "aten::maximum", "fp16", "70000",
             [] { half({4}).maximum(at::scalar_tensor(70000, at::kInt)); });
  expect_one("constant", Severity::hazard, "aten::add_", "bf16", "-1e+39",
             [] { bfloat({4}).add_(-1e39); });
  expect_one("constant", Severity::hazard, "aten::where", "bf16", "-1e+300",
             [&] { at::where(mask, bfloat({4}), at::scalar_tensor(-1e300, at::kDouble)); });
  EXPECT_THAT(found("constant",
                    [&] {
                      bfloat({4}).add(-3.38e38);
                      half({4}).masked_fill(mask, -65504);
                      half({4}).masked_fill(mask, -std::numeric_limits<double>::infinity());
                      bfloat({4}).masked_fill(mask, -1e9);
                      half({4}).add(-65519);  // rounds to -65504
                    }),
              IsEmpty());
}

// LibTorch refuses to fill with it: the step ends there, and the report says why.
TEST(LintConstant, AMaskThatStopsTheStep) {
  const at::Tensor mask = half({4}).gt(0);
  const LintReport report = lint([&] { half({4}).masked_fill(mask, -1e9); });
  ASSERT_THAT(report.findings, SizeIs(1));
  EXPECT_EQ(report.findings[0].rule, "constant");
  EXPECT_EQ(report.findings[0].operation, "aten::masked_fill");
  EXPECT_EQ(report.findings[0].value, "-1e+09");
  EXPECT_THAT(report.stopped, HasSubstr("overflow"));
}

TEST(LintConstant, EveryFillThatStopsTheStep) {
  const at::Tensor mask = half({4}).gt(0);
  const at::Tensor index = at::zeros({2}, at::kLong);
  const std::vector<std::pair<std::string, std::function<void()>>> fills = {
      {"aten::masked_fill", [&] { half({4}).masked_fill(mask, -1e10); }},
      {"aten::masked_fill_", [&] { half({4}).masked_fill_(mask, -1e9); }},
      {"aten::masked_fill", [&] { bfloat({4}).masked_fill(mask, -1e39); }},
      {"aten::index_fill", [&] { half({4}).index_fill(0, index, -1e9); }},
      {"aten::fill_", [] { half({4}).fill_(-1e9); }},
      {"aten::full", [] { at::full({4}, -1e9, at::kHalf); }}};
  for (const auto& [operation, step] : fills) {
    const LintReport report = lint(step);
    ASSERT_THAT(report.findings, SizeIs(1)) << operation;
    EXPECT_EQ(report.findings[0].rule, "constant");
    EXPECT_EQ(report.findings[0].operation, operation);
  }
}

TEST(LintConstant, ASubnormalIsANote) {
  expect_one("constant", Severity::note, "aten::clamp_min", "fp16", "1e-06",
             [] { half({4}).clamp_min(1e-6); });
  EXPECT_THAT(found("constant", [] { bfloat({4}).clamp_min(1e-6); }), IsEmpty());
}

TEST(LintPosition, ARangeBeyondTheExactIntegers) {
  expect_one("position", Severity::hazard, "aten::arange", "bf16", "1024",
             [] { at::arange(1024, at::kBFloat16); });
  const auto findings = found("position", [] { at::arange(1024, at::kBFloat16); });
  EXPECT_THAT(findings[0].consequence, HasSubstr("1024 different ones become 513"));
  EXPECT_THAT(found("position", [] { at::linspace(0, 4095, 4096, at::kHalf); }), SizeIs(1));
  EXPECT_THAT(found("position",
                    [] {
                      at::arange(257, at::kBFloat16);
                      at::arange(2049, at::kHalf);
                      at::arange(0, 512, 2, at::kBFloat16);
                      at::arange(100000);
                      at::arange(100000, at::kFloat);
                      at::linspace(0, 1, 16, at::kBFloat16);
                    }),
              IsEmpty());
}

TEST(LintPosition, IntegersThatBecome16Bit) {
  const at::Tensor positions = at::arange(3000);
  const auto expect = [](const std::string& operation, const std::function<void()>& step) {
    expect_one("position", Severity::hazard, operation, "fp16", "2999", step);
  };
  expect("aten::to", [&] { positions.to(at::kHalf); });
  expect("aten::to", [&] { positions.to(at::kFloat).to(at::kHalf); });
  expect("aten::mul", [&] { half({3000}).mul(positions); });
  expect("aten::copy_", [&] { half({3000}).copy_(positions); });
  expect_one("position", Severity::hazard, "aten::cumsum", "bf16", "300",
             [] { bfloat({300}).cumsum(0); });
  EXPECT_THAT(found("position",
                    [&] {
                      positions.narrow(0, 0, 2049).to(at::kHalf);
                      positions.to(at::kFloat);
                      positions.to(at::kFloat).mul(0.001).to(at::kHalf);
                      half({3000}).mul(positions.to(at::kFloat).mul(0.1).to(at::kHalf));
                      half({3000}).index({positions.gt(5)});
                      bfloat({256}).cumsum(0);
                      half({3000}).index_select(0, positions);
                    }),
              IsEmpty());
}

TEST(LintDomain, FiniteArgumentsWithInfiniteResults) {
  const at::Tensor zero = at::zeros({4});
  const auto expect = [](const std::string& operation, const std::string& format,
                         const std::string& value, const std::function<void()>& step) {
    expect_one("domain", Severity::hazard, operation, format, value, step);
  };
  expect("aten::log", "fp32", "0", [&] { zero.log(); });
  expect("aten::exp", "fp16", "12", [] { at::full({4}, 12, at::kHalf).exp(); });
  expect("aten::div", "bf16", "0", [] { bfloat({4}).div(at::zeros({4}, at::kBFloat16)); });
  expect("aten::div", "fp16", "1e-05", [] { half({4}).div(1e-5); });
  expect("aten::sqrt", "fp32", "-1", [&] { zero.sub(1).sqrt(); });
  expect("aten::rsqrt", "fp32", "0", [&] { zero.rsqrt(); });
  expect("aten::pow", "fp16", "300", [] { at::full({4}, 300, at::kHalf).pow(2); });
  expect("aten::log_", "fp16", "0", [] { at::zeros({4}, at::kHalf).log_(); });
  EXPECT_THAT(found("domain",
                    [&] {
                      half({4}).log();
                      at::full({4}, 11, at::kHalf).exp();  // 59874
                      at::full({4}, 12, at::kBFloat16).exp();
                      half({4}).div(2e-5);
                      zero.sqrt();
                      half({4}).mul(-std::numeric_limits<double>::infinity()).exp();
                      at::full({4}, std::numeric_limits<double>::quiet_NaN()).log();
                      at::log_softmax(half({4}).mul(30000), 0);
                    }),
              IsEmpty());
}

TEST(LintDomain, SaturatedProbabilities) {
  const at::Tensor target = at::ones({4}, at::kBFloat16);
  expect_one("domain", Severity::hazard, "aten::binary_cross_entropy", "bf16", "0 or 1", [&] {
    at::binary_cross_entropy(at::full({4}, 9.0, at::kBFloat16).sigmoid(), target);
  });
  // The next number below 1 is 2^-11 away in FP16 and 2^-24 in FP32; e^-20 is below both and, in
  // FP16, 0.
  const auto expect = [](at::ScalarType dtype, double logit, const std::string& format) {
    expect_one("domain", Severity::hazard, "aten::binary_cross_entropy", format, "0 or 1", [&] {
      at::binary_cross_entropy(at::full({4}, logit, dtype).sigmoid(), at::ones({4}, dtype));
    });
  };
  expect(at::kHalf, 9, "fp16");
  expect(at::kHalf, -20, "fp16");
  expect(at::kFloat, 20, "fp32");
  EXPECT_THAT(
      found("domain",
            [&] { at::binary_cross_entropy(at::full({4}, 9.0).sigmoid(), target.to(at::kFloat)); }),
      IsEmpty());
}

TEST(LintOverflow, AProductBeyondFp16) {
  const at::Tensor a = at::full({8, 1024}, 8, at::kHalf);
  const at::Tensor b = at::full({1024, 8}, 8, at::kHalf);
  expect_one("overflow", Severity::hazard, "aten::mm", "fp16", "inf", [&] { at::mm(a, b); });
  EXPECT_THAT(found("overflow",
                    [&] {
                      at::mm(a.to(at::kBFloat16), b.to(at::kBFloat16));
                      at::mm(a, b.div(2));
                      at::mm(a.mul(std::numeric_limits<double>::infinity()), b);
                    }),
              IsEmpty());
}

TEST(LintOverflow, EveryProductBeyondFp16) {
  const at::Tensor a = at::full({8, 1024}, 8, at::kHalf);
  const auto expect = [](const std::string& operation, const std::function<void()>& step) {
    expect_one("overflow", Severity::hazard, operation, "fp16", "inf", step);
  };
  expect("aten::linear", [&] { at::linear(a, a); });
  expect("aten::matmul", [&] { at::matmul(a.unsqueeze(0), a.t()); });
  expect("aten::conv1d", [&] { at::conv1d(a.view({8, 64, 16}), a.view({8, 64, 16})); });
  expect("aten::mul", [&] { a.mul(1e4); });
  expect("aten::cumsum", [&] { a.mul(16).cumsum(1); });
}

TEST(LintOverflow, ACastAndALongSum) {
  expect_one("overflow", Severity::hazard, "aten::to", "fp16", "inf",
             [] { at::full({4}, 1e5).to(at::kHalf); });
  const at::Tensor zeros = at::zeros({1, 50257}, at::kHalf);
  expect_one("overflow", Severity::hazard, "aten::sum", "fp16", "-inf",
             [&] { at::log_softmax(zeros, -1).sum(-1); });
  EXPECT_THAT(found("overflow", [&] { at::log_softmax(zeros.to(at::kFloat), -1).sum(-1); }),
              IsEmpty());
}

TEST(LintOverflow, TheNodeThatMakesTheFirstInfiniteGradient) {
  const at::Tensor w = at::zeros({3}).requires_grad_();
  const auto findings = found("overflow", [&] {
    const tensor::Scope scope("norm");
    w.pow(2).sum().sqrt().backward();
  });
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].operation, "SqrtBackward0");
  EXPECT_EQ(findings[0].scope, "norm");
  // Its division by the norm is masked, and so no hazard.
  EXPECT_THAT(found("overflow", [&] { w.norm().backward(); }), IsEmpty());
}

TEST(LintUnderflow, ACastThatLosesMostNumbers) {
  expect_one("underflow", Severity::hazard, "aten::to", "fp16", "1e-09",
             [] { at::full({4}, 1e-9).to(at::kHalf); });
  EXPECT_THAT(found("underflow",
                    [] {
                      at::full({4}, 1e-9).to(at::kBFloat16);
                      at::zeros({4}).to(at::kHalf);
                      at::tensor({1e-9, 1.0, 1.0}).to(at::kFloat).to(at::kHalf);
                    }),
              IsEmpty());
}

TEST(LintUnderflow, TheEnginesCastOfAGradientIsPartOfItsNode) {
  const at::Tensor x = at::ones({4}, at::kHalf).requires_grad_();
  const auto findings = found("underflow", [&] { x.mul(at::full({4}, 1e-8)).sum().backward(); });
  ASSERT_FALSE(findings.empty());
  EXPECT_EQ(findings[0].operation, "MulBackward0");
}

TEST(LintUnderflow, Fp16GradientsBelowTheSmallestNormal) {
  const at::Tensor w = at::ones({8, 8}, at::kHalf).requires_grad_();
  const auto step = [&](double scale) {
    return [&w, scale] { at::mm(w, w).to(at::kFloat).mul(1e-5 * scale).sum().backward(); };
  };
  EXPECT_THAT(found("underflow", step(1)), SizeIs(testing::Ge(1)));
  EXPECT_THAT(found("underflow", step(1024)), IsEmpty());
}

TEST(LintHalfFft, NamesEveryTransformOf16Bits) {
  const std::vector<std::pair<std::string, std::function<void()>>> transforms = {
      {"aten::fft_fft", [] { at::fft_fft(bfloat({8})); }},
      {"aten::fft_rfft2",
       [] {
         at::fft_rfft2(half({20, 4}));
       }},
      {"aten::stft",
       [] { at::stft(bfloat({12}), 4, 2, 4, bfloat({4}), true, "reflect", false, true, true); }}};
  for (const auto& [operation, step] : transforms) {
    const auto findings = found("half-fft", step);
    ASSERT_THAT(findings, SizeIs(1)) << operation;
    EXPECT_EQ(findings[0].operation, operation);
  }
}

TEST(LintHalfFft, NamesTheTransform) {
  const LintReport report = lint([] { at::fft_rfft(half({12})); });
  ASSERT_THAT(report.findings, SizeIs(1));
  EXPECT_EQ(report.findings[0].rule, "half-fft");
  EXPECT_EQ(report.findings[0].operation, "aten::fft_rfft");
  EXPECT_EQ(report.findings[0].value, "length 12");
  EXPECT_FALSE(report.stopped.empty());
  EXPECT_THAT(found("half-fft", [] { at::fft_rfft(half({12}).to(at::kFloat)); }), IsEmpty());
}

TEST(LintTensorCoreSize, SizesThatAreNoMultiplesOf8) {
  expect_one("tensor-core-size", Severity::note, "aten::linear", "bf16", "50257 columns", [] {
    at::linear(bfloat({16, 8}), bfloat({50257, 8}));
  });
  const at::Tensor signal = half({1, 4, 16});
  const at::Tensor filter = half({8, 4, 3});
  expect_one("tensor-core-size", Severity::note, "aten::conv1d", "fp16", "4 channels",
             [&] { at::conv1d(signal, filter); });
  EXPECT_THAT(found("tensor-core-size",
                    [] {
                      at::linear(bfloat({16, 8}), bfloat({50264, 8}));
                      at::linear(at::ones({16, 8}), at::ones({50257, 8}));
                      at::linear(bfloat({16, 8}), bfloat({1, 8}));
                      at::conv1d(half({1, 8, 16}), half({8, 8, 3}));
                    }),
              IsEmpty());
}

void batch_norm(const at::Tensor& x, at::ScalarType of_statistics) {
  const int64_t channels = x.size(1);
  at::batch_norm(x, at::ones({channels}, of_statistics), at::zeros({channels}, of_statistics),
                 at::zeros({channels}, of_statistics), at::ones({channels}, of_statistics),
                 /*training=*/true, 0.1, 1e-5, /*cudnn_enabled=*/false);
}

TEST(LintBatchNorm, RunningStatisticsIn16Bits) {
  expect_one("batch-norm", Severity::hazard, "aten::batch_norm", "bf16", "running_mean", [] {
    batch_norm(bfloat({4, 2}), at::kBFloat16);
  });
  EXPECT_THAT(found("batch-norm",
                    [] {
                      batch_norm(bfloat({4, 2}), at::kFloat);
                      batch_norm(at::ones({4, 2}), at::kFloat);
                    }),
              IsEmpty());
}

TEST(LintBatchNorm, RunningStatisticsThatAreNotFinite) {
  const at::Tensor x = at::ones({4, 2});
  x[0][0] = std::numeric_limits<float>::infinity();
  expect_one("batch-norm", Severity::hazard, "aten::batch_norm", "fp32", "running_mean",
             [&] { batch_norm(x, at::kFloat); });
}

TEST(LintGradientSum, ASecondBackwardInto16Bits) {
  const auto backward_twice = [](at::ScalarType dtype, bool keeps) {
    const at::Tensor w = at::ones({8}, dtype).requires_grad_();
    const auto step = [w, keeps] {
      w.sum().backward();
      if (!keeps) {
        w.mutable_grad() = at::Tensor();
      }
      w.sum().backward();
    };
    return found("gradient-sum", step, {.parameters = {{"w", w}}});
  };
  const auto findings = backward_twice(at::kBFloat16, true);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].scope, "w");
  EXPECT_EQ(findings[0].format, "bf16");
  EXPECT_THAT(backward_twice(at::kFloat, true), IsEmpty());
  EXPECT_THAT(backward_twice(at::kBFloat16, false), IsEmpty());
}

TEST(LintRepeatedIndex, AnEmbeddingGradientThatStopsGrowing) {
  const auto gradient = [](at::ScalarType dtype, int64_t tokens) {
    const at::Tensor table = at::ones({2, 1}, dtype).requires_grad_();
    return found("repeated-index", [table, tokens] {
      at::embedding(table, at::zeros({tokens}, at::kLong)).sum().backward();
    });
  };
  const auto findings = gradient(at::kBFloat16, 1000);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].operation, "EmbeddingBackward0");
  EXPECT_EQ(findings[0].value, "error 74.4 %");  // 256 of 1000
  EXPECT_THAT(gradient(at::kBFloat16, 100), IsEmpty());
  EXPECT_THAT(gradient(at::kFloat, 1000), IsEmpty());
}

// 1000 terms of 1 in BF16, 5000 in FP16, in each form that adds them up in 16 bits.
TEST(LintRepeatedIndex, EverySumOver16BitsThatStopsGrowing) {
  for (const auto& format : {std::pair{at::kBFloat16, 1000}, {at::kHalf, 5000}}) {
    const at::ScalarType dtype = format.first;
    const int64_t terms = format.second;
    const at::Tensor index = at::zeros({terms}, at::kLong);
    const at::Tensor ones = at::ones({terms}, dtype);
    const c10::List<std::optional<at::Tensor>> indices({index});
    const at::Tensor table = at::ones({2, 1}, dtype).requires_grad_();
    const std::vector<std::pair<std::string, std::function<void()>>> sums = {
        {"aten::index_add", [&] { at::index_add(at::zeros({2}, dtype), 0, index, ones); }},
        {"aten::index_add_", [&] { at::zeros({2}, dtype).index_add_(0, index, ones); }},
        {"aten::index_put",
         [&] { at::index_put(at::zeros({2}, dtype), indices, ones, /*accumulate=*/true); }},
        {"EmbeddingBackward0", [&] { at::embedding(table, index).sum().backward(); }},
        {"IndexBackward0", [&] { table.index({index}).sum().backward(); }}};
    for (const auto& [operation, step] : sums) {
      const auto findings = found("repeated-index", step);
      ASSERT_THAT(findings, SizeIs(1)) << operation << " " << dtype;
      EXPECT_EQ(findings[0].operation, operation);
    }
  }
}

TEST(LintLoss, ALossIn16Bits) {
  const at::Tensor targets = at::zeros({8}, at::kLong);
  const auto findings = found("loss", [&] { at::cross_entropy_loss(bfloat({8, 4}), targets); });
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].operation, "aten::cross_entropy_loss");
  EXPECT_THAT(findings[0].consequence, HasSubstr("steps of 0.0078125"));  // 2^-7 from 1 to 2
  EXPECT_THAT(found("loss", [&] { at::cross_entropy_loss(at::ones({8, 4}), targets); }), IsEmpty());
}

TEST(LintIndex, OneBeyondTheTableOrTheClasses) {
  const at::Tensor table = at::ones({4, 2});
  const auto longs = [](std::vector<int64_t> numbers) { return at::tensor(numbers); };
  const auto expect = [](const std::string& operation, const std::string& value,
                         const std::function<void()>& step) {
    expect_one("index", Severity::hazard, operation, "fp32", value, step);
  };
  expect("aten::embedding", "4", [&] { at::embedding(table, longs({0, 4})); });
  expect("aten::embedding", "-1", [&] { at::embedding(table, longs({-1})); });
  expect("aten::index_select", "7", [&] { table.index_select(0, longs({7})); });
  expect("aten::gather", "2", [&] { table.gather(1, longs({0, 2}).view({1, 2})); });
  expect("aten::cross_entropy_loss", "2", [&] {
    at::cross_entropy_loss(table, longs({0, 1, 1, 2}));
  });
  EXPECT_THAT(found("index",
                    [&] {
                      at::embedding(table, longs({0, 3}));
                      at::cross_entropy_loss(table, longs({0, 1, -100, 1}));
                    }),
              IsEmpty());
}

TEST(LintLostUpdate, AWeightDecayThatChangesNothing) {
  const auto decay = [](double factor) {
    const at::Tensor weight = bfloat({4}).requires_grad_();
    const at::NoGradGuard no_grad;
    weight.mul_(factor);
  };
  expect_one("lost-update", Severity::hazard, "aten::mul_", "bf16", "4 of 4",
             [&] { decay(0.9999); });
  EXPECT_THAT(found("lost-update", [&] { decay(0.5); }), IsEmpty());
}

TEST(LintLostUpdate, ParametersAndAveragesThatStandStill) {
  const auto update = [](at::ScalarType dtype, double lr) {
    const at::Tensor w = at::ones({8}, dtype).requires_grad_();
    return found("lost-update", [w, lr] {
      const at::NoGradGuard no_grad;
      w.add_(at::ones({8}, w.scalar_type()), -lr);
    });
  };
  const auto findings = update(at::kBFloat16, 1e-3);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].value, "8 of 8");
  EXPECT_THAT(update(at::kBFloat16, 1e-2), IsEmpty());
  EXPECT_THAT(update(at::kFloat, 1e-3), IsEmpty());
  const auto average = [](at::ScalarType dtype) {
    return found("lost-update",
                 [dtype] { at::ones({8}, dtype).lerp_(at::zeros({8}, dtype), 0.001); });
  };
  EXPECT_THAT(average(at::kBFloat16), SizeIs(1));
  EXPECT_THAT(average(at::kFloat), IsEmpty());
}

TEST(Lint, EqualFindingsAreCountedWithTheFirstScope) {
  const LintReport report = lint([] {
    for (int layer = 0; layer < 3; ++layer) {
      const tensor::Scope scope("blocks." + std::to_string(layer));
      half({4}).add(kTiny);
    }
    half({4}).add(2e-9);
  });
  ASSERT_THAT(report.findings, SizeIs(2));
  EXPECT_EQ(report.findings[0].scope, "blocks.0");
  EXPECT_EQ(report.findings[0].count, 3);
  EXPECT_EQ(report.findings[1].scope, "");
  EXPECT_THAT(to_string(report.findings[0]),
              HasSubstr("hazard constant: aten::add in fp16 at blocks.0 and 2 more: 1e-08\n"));
}

TEST(Lint, HazardsComeBeforeNotes) {
  const LintReport report = lint([] {
    half({4}).clamp_min(1e-6);
    half({4}).add(kTiny);
  });
  ASSERT_THAT(report.findings, SizeIs(2));
  EXPECT_EQ(report.findings[0].severity, Severity::hazard);
  EXPECT_EQ(report.num(Severity::hazard), 1);
  EXPECT_EQ(report.num(Severity::note), 1);
}

TEST(Lint, AStepThatThrowsWithoutAFindingRethrows) {
  EXPECT_THROW(lint([] { at::mm(at::ones({2, 3}), at::ones({2, 3})); }), c10::Error);
  EXPECT_THROW(lint([] { throw InvalidArgument("own"); }), InvalidArgument);
}

TEST(Lint, APlainFp32StepIsClean) {
  const at::Tensor w = at::ones({8, 8}).div(8).requires_grad_();
  const LintReport report = lint([&] {
    const at::Tensor y = at::linear(at::ones({8, 8}), w).softmax(-1).add(1e-12).log();
    y.masked_fill(y.gt(0), -1e9).mean().backward();
  });
  EXPECT_THAT(report.findings, IsEmpty());
  EXPECT_GT(report.calls, 10);
  EXPECT_EQ(report.stopped, "");
}

TEST(LintRules, HaveDifferentNamesAndSources) {
  std::set<std::string> names;
  for (const LintRule& rule : lint_rules()) {
    EXPECT_TRUE(names.insert(rule.name).second) << rule.name;
    EXPECT_FALSE(rule.checks.empty());
    EXPECT_FALSE(rule.source.empty());
  }
}

}  // namespace
}  // namespace mantissa::monitor
