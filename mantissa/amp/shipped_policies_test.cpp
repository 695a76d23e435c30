#include "mantissa/amp/shipped_policies.h"

#include <cmath>
#include <functional>
#include <set>
#include <tuple>

#include <ATen/ops/arange.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/dist.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gru.h>
#include <ATen/ops/gru_cell.h>
#include <ATen/ops/heaviside.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/index_copy.h>
#include <ATen/ops/index_reduce.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/l1_loss.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/lstm.h>
#include <ATen/ops/lstm_cell.h>
#include <ATen/ops/masked_scatter.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/nansum.h>
#include <ATen/ops/norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/prod.h>
#include <ATen/ops/put.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/rnn_relu.h>
#include <ATen/ops/rnn_tanh.h>
#include <ATen/ops/scatter.h>
#include <ATen/ops/scatter_reduce.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/std.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/trace.h>
#include <ATen/ops/var.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mantissa/amp/autocast.h"
#include "mantissa/amp/operations.h"
#include "mantissa/amp/parameter_formats.h"
#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/numerics/error_bound.h"
#include "mantissa/tensor/dtype.h"
#include "mantissa/tensor/scope.h"

namespace mantissa::amp {
namespace {

at::Tensor bf16(at::IntArrayRef sizes) { return at::randn(sizes).to(at::kBFloat16); }

TEST(ShippedPolicies, EachIsFoundByItsNameAndValid) {
  for (const std::string& name : policy_names()) {
    EXPECT_EQ(find_policy(name).base, name);
    EXPECT_NO_THROW((void)resolved_rules(find_policy(name))) << name;
  }
  EXPECT_EQ(message_of<InvalidArgument>([] { (void)shipped_policy("torhc"); }),
            "policy: unknown base \"torhc\"; did you mean \"torch\"?");
}

TEST(ShippedPolicies, EachOperationIsOneOfThisLibTorch) {
  const OperationIndex operations;
  std::set<std::string_view> seen;
  for (const std::string& name : policy_names()) {
    for (const OpRule& row : shipped_policy(name).rules) {
      EXPECT_TRUE(operations.has(row.operation)) << name << ": " << row.operation;
    }
  }
  for (const Fix fix : kFixes) {
    for (const OpRule& row : rules_of(fix)) {
      EXPECT_TRUE(operations.has(row.operation)) << words(fix).name << ": " << row.operation;
    }
  }
}

TEST(ShippedPolicies, TorchFixedIsTorchWithEverySwitchOn) {
  std::string text = "torch";
  for (const Fix fix : kFixes) {
    text += concat(" ", words(fix).name, "=", words(fix).on);
  }
  const auto rules = resolved_rules(find_policy(text));
  const auto fixed = resolved_rules(find_policy("torch-fixed"));
  ASSERT_EQ(rules.size(), fixed.size());
  for (const auto& [operation, resolved] : rules) {
    EXPECT_EQ(fixed.at(operation).rule, resolved.rule) << operation;
  }
}

// What LibTorch refuses to do with an FP32 and a BF16 tensor.
struct Mixed {
  const char* name;
  std::function<at::Tensor()> call;
};

const std::vector<Mixed>& mixed_calls() {
  const auto index = [] { return at::zeros({2}, at::kLong); };
  static const std::vector<Mixed> calls = {
      {"complex", [] { return at::complex(bf16({3}), at::ones({3})); }},
      {"heaviside", [] { return at::heaviside(bf16({3}), at::ones({3})); }},
      {"index_add",
       [=] {
         return at::index_add(at::zeros({2, 2}), 0, index(), bf16({2, 2}));
       }},
      {"index_copy",
       [=] {
         return at::index_copy(at::zeros({2, 2}), 0, index(), bf16({2, 2}));
       }},
      {"index_reduce",
       [=] {
         return at::index_reduce(at::ones({2, 2}), 0, index(), bf16({2, 2}), "prod");
       }},
      {"lerp by number", [] { return at::lerp(at::zeros({2}), bf16({2}), 0.5); }},
      {"lerp by tensor", [] { return at::lerp(at::zeros({2}), bf16({2}), at::ones({2})); }},
      {"masked_scatter",
       [] {
         return at::masked_scatter(at::zeros({2, 2}), at::ones({2, 2}, at::kBool), bf16({2, 2}));
       }},
      {"put", [=] { return at::put(at::zeros({4}), index(), bf16({2})); }},
      {"scatter", [=] { return at::scatter(at::zeros({2}), 0, index(), bf16({2})); }},
      {"scatter_reduce",
       [=] { return at::scatter_reduce(at::zeros({2}), 0, index(), bf16({2}), "sum"); }},
  };
  return calls;
}

TEST(ShippedPolicies, PromoteLiftsWhatLibTorchRefuses) {
  for (const Mixed& mixed : mixed_calls()) {
    {
      const Autocast region(find_policy("torch"));
      EXPECT_THROW((void)mixed.call(), std::exception) << mixed.name;
    }
    const Autocast region(find_policy("torch promote=all"));
    EXPECT_NO_THROW((void)mixed.call()) << mixed.name;
  }
}

TEST(ShippedPolicies, StatisticsAreFp32) {
  const Autocast region(find_policy("torch-fixed"));
  EXPECT_EQ(at::mean(bf16({4})).scalar_type(), at::kFloat);
  EXPECT_EQ(at::mean(bf16({4, 2}), {0}).scalar_type(), at::kFloat);
  EXPECT_EQ(at::var(bf16({4})).scalar_type(), at::kFloat);
}

TEST(ShippedPolicies, LeanKeeps16BitsFromTheEmbeddingToTheHead) {
  const Autocast region(find_policy("lean"));
  const at::Tensor w = at::randn({8, 8}).requires_grad_();
  const at::Tensor x = at::embedding(w, at::zeros({2, 3}, at::kLong));
  EXPECT_EQ(x.scalar_type(), at::kBFloat16);
  const at::Tensor y = at::layer_norm(x, {8}, at::ones({8}), at::zeros({8}));
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  EXPECT_EQ(at::softmax(y, -1).scalar_type(), at::kBFloat16);
  EXPECT_EQ(x.add(at::linear(y, w)).scalar_type(), at::kBFloat16);
}

// docs/numerics.md, "What lean costs": the exact function of the 16-bit inputs in double, against
// the kernel. FP32 inside adds a relative 2^-13 at most, for rows of 256 numbers near zero: sums
// pass 256 roundings of 2^-24, thrice, and the root and the products a dozen.
class LeanBoundTest : public ::testing::TestWithParam<const char*> {
 protected:
  static constexpr double kFp32 = 0x1p-13;
  double u() const { return numerics::unit_roundoff(numerics::parse_format(GetParam())); }
  double h() const { return numerics::underflow_error(numerics::parse_format(GetParam())); }
  Policy policy() const { return find_policy(concat("lean compute=", GetParam())); }
  at::Tensor narrow(at::IntArrayRef sizes) const {
    return at::randn(sizes).to(tensor::dtype_of(policy().compute));
  }
  static void expect_within(const at::Tensor& y, const at::Tensor& exact, const at::Tensor& bound) {
    EXPECT_LE(y.to(at::kDouble).sub(exact).abs().sub(bound).max().item<double>(), 0);
  }
};

TEST_P(LeanBoundTest, OfNorms) {
  at::manual_seed(4);
  const at::Tensor x = narrow({64, 256});
  const at::Tensor w = at::randn({256});
  const at::Tensor b = at::randn({256});
  const at::Tensor wide = x.to(at::kDouble);
  const at::Tensor normalized = at::layer_norm(wide, {256});
  const at::Tensor product = normalized.mul(w);
  const at::Tensor size = product.abs().add(b.abs());
  const double share = 2 * u() + u() * u() + kFp32;
  // A weight, a bias or a result below the smallest normal is off by h.
  const at::Tensor underflow = normalized.abs().add(2).mul(h());
  at::Tensor y;
  {
    const Autocast region(policy());
    y = at::layer_norm(x, {256}, w, b);
  }
  EXPECT_EQ(y.scalar_type(), x.scalar_type());
  expect_within(y, product.add(b), size.mul(share).add(underflow));
  {
    const Autocast region(policy());
    y = at::rms_norm(x, {256}, w);
  }
  const at::Tensor exact = at::rms_norm(wide, {256}, w.to(at::kDouble));
  expect_within(y, exact, exact.abs().mul(share).add(underflow));
}

TEST_P(LeanBoundTest, OfSoftmaxAndItsSum) {
  at::manual_seed(5);
  const at::Tensor x = narrow({64, 256});
  at::Tensor y;
  {
    const Autocast region(policy());
    y = at::softmax(x, -1);
  }
  EXPECT_EQ(y.scalar_type(), x.scalar_type());
  const at::Tensor exact = at::softmax(x.to(at::kDouble), -1);
  expect_within(y, exact, exact.mul(u() + kFp32).add(h()));
  const at::Tensor sums = y.to(at::kDouble).sum(-1);
  EXPECT_LE(sums.sub(1).abs().max().item<double>(), u() + kFp32 + 256 * h());
}

TEST_P(LeanBoundTest, OfTheResidualStream) {
  at::manual_seed(6);
  // Eight additions of 16-bit numbers to a 16-bit stream, each rounded once.
  at::Tensor stream = narrow({64, 256});
  at::Tensor exact = stream.to(at::kDouble);
  at::Tensor bound = at::zeros_like(exact);
  const Autocast region(policy());
  for (int i = 0; i < 8; ++i) {
    const at::Tensor branch = narrow({64, 256});
    stream = stream.add(branch);
    exact = exact.add(branch.to(at::kDouble));
    bound = bound.add(exact.abs().add(bound).mul(u()));
  }
  expect_within(stream, exact, bound);
}

INSTANTIATE_TEST_SUITE_P(Formats, LeanBoundTest, ::testing::Values("bf16", "fp16"));

// transformers#9295 and others: rows of a small vocabulary get thousands of terms.
TEST(ShippedPolicies, LeanSumsTheGradientOfAnEmbeddingInFp32) {
  const at::Tensor w = at::zeros({2, 1}).requires_grad_();
  at::Tensor loss;
  {
    const Autocast region(find_policy("lean"));
    loss = at::embedding(w, at::zeros({1000}, at::kLong)).sum();
  }
  loss.backward();
  EXPECT_EQ(w.grad()[0].item<float>(), 1000);
}

// Whichever way a row of an FP32 table is looked up, and however often: thrice as often as its
// neighbour, the padding not at all.
TEST(ShippedPolicies, RowsOfATableGetTheGradientsOfAllTheirUses) {
  const auto gradient = [](const char* name, int64_t uses, const auto& look_up) {
    const at::Tensor w = at::zeros({3, 1}).requires_grad_();
    const at::Tensor rows = at::tensor({0, 0, 1, 0}).to(at::kLong).repeat({uses});
    const Policy policy = find_policy(name);
    const ParameterFormats formats(policy, {{"table", w}});
    at::Tensor loss;
    {
      const Autocast region(policy, formats);
      loss = look_up(w, rows).sum();
    }
    loss.backward();
    return w.grad();
  };
  for (const auto& [policy, uses] : {std::pair{"lean", 1000},
                                     {"lean compute=fp16", 5000},
                                     {"torch-fixed", 1000},
                                     {"genomics compute=fp16", 5000},
                                     {"keras", 1000}}) {
    SCOPED_TRACE(policy);
    const auto count = static_cast<float>(uses);
    const at::Tensor expected = at::tensor({3 * count, count, 0.0F}).unsqueeze(1);
    EXPECT_TRUE(at::equal(
        gradient(policy, uses, [](const auto& w, const auto& i) { return at::embedding(w, i); }),
        expected));
    EXPECT_TRUE(at::equal(gradient(policy, uses,
                                   [](const auto& w, const auto& i) {
                                     return at::embedding(w, i, /*padding_idx=*/2);
                                   }),
                          expected));
    EXPECT_TRUE(
        at::equal(gradient(policy, uses,
                           [](const auto& w, const auto& i) { return at::index_select(w, 0, i); }),
                  expected));
    EXPECT_TRUE(
        at::equal(gradient(policy, uses, [](const auto& w, const auto& i) { return w.index({i}); }),
                  expected));
  }
}

TEST(ShippedPolicies, KerasComputesALayerInOneFormat) {
  const Autocast region(find_policy("keras"));
  const at::Tensor x = at::randn({2, 8});
  EXPECT_EQ(at::linear(x, at::randn({8, 8})).scalar_type(), at::kBFloat16);
  EXPECT_EQ(at::layer_norm(x, {8}).scalar_type(), at::kBFloat16);
  EXPECT_EQ(at::softmax(bf16({2}), 0).scalar_type(), at::kBFloat16);
}

TEST(ShippedPolicies, ApexO1PromotesAdditionAndComputesGeluInFp32) {
  const auto rules = resolved_rules(find_policy("apex-o1"));
  EXPECT_EQ(rules.at("aten::gelu").rule, Rule::fp32);
  EXPECT_EQ(rules.at("aten::add.Tensor").rule, Rule::widest);
  EXPECT_EQ(rules.at("aten::mm").rule, Rule::lower);
  EXPECT_EQ(find_policy("apex-o1").compute, numerics::Format::fp16);
}

TEST(ShippedPolicies, GenomicsKeepsFiltersAndSsmParametersInFp32) {
  const Policy policy = find_policy("genomics");
  EXPECT_EQ(compute_format(policy, "blocks.3.mixer.filter.mlp"), numerics::Format::fp32);
  EXPECT_EQ(compute_format(policy, "blocks.3.mixer"), numerics::Format::bf16);
  EXPECT_EQ(parameter_format(find_policy("genomics param=bf16"), "blocks.0.A_log"),
            numerics::Format::fp32);
}

// Label smoothing over a vocabulary: 50257 * ln 50257 is beyond FP16. The bound is that of an FP32
// sum of n terms in any order.
TEST(ShippedPolicies, ALongSumOfLogProbabilitiesIsFp32) {
  const Autocast region(find_policy("torch-fixed compute=fp16"));
  constexpr double kTerms = 50257;
  const at::Tensor logits = at::zeros({1, static_cast<int64_t>(kTerms)}, at::kHalf);
  const double exact = kTerms * std::log(kTerms);
  EXPECT_NEAR(at::log_softmax(logits, -1).sum(-1).neg().item<double>(), exact,
              exact * kTerms * 0x1p-24);
}

// Each is beyond 65504. The bound is that of an FP32 sum as above, for the terms of the case, and
// of a root.
TEST(ShippedPolicies, SumsBeyondFp16AreFp32) {
  const at::Tensor ones = at::ones({70000}, at::kHalf);
  const at::Tensor large = at::full({100}, 1e4, at::kHalf);
  const at::Tensor pair = at::tensor({-300.0F, 300.0F}).to(at::kHalf);
  struct Case {
    const char* name;
    double exact;
    std::function<at::Tensor()> call;
  };
  const std::vector<Case> cases = {
      {"sum", 70000, [&] { return at::sum(ones); }},
      {"sum of a dimension", 70000,
       [&] {
         return at::sum(ones.view({7, 10000}), {0, 1});
       }},
      {"sum of an expanded number", 70000,
       [&] { return ones.narrow(0, 0, 1).expand({70000}).sum(); }},
      {"nansum", 70000, [&] { return at::nansum(ones); }},
      {"cumsum", 70000, [&] { return at::cumsum(ones, 0)[69999]; }},
      {"prod", 90000, [&] { return at::prod(pair).neg(); }},
      {"norm", 1e5, [&] { return at::norm(large); }},
      {"linalg_vector_norm", 1e5, [&] { return at::linalg_vector_norm(large); }},
      {"dist", 1e5, [&] { return at::dist(large, at::zeros_like(large)); }},
      {"var", 180000, [&] { return at::var(pair); }},
      {"std", std::sqrt(180000.0), [&] { return at::std(pair); }},
      {"trace", 90000,
       [&] {
         return at::trace(pair[1].expand({300, 300}));
       }},
      {"l1_loss", 1e6,
       [&] { return at::l1_loss(large, at::zeros_like(large), at::Reduction::Sum); }},
      {"mse_loss", 90000, [&] { return at::mse_loss(pair, at::zeros_like(pair)); }}};
  const Autocast region(find_policy("torch-fixed compute=fp16"));
  for (const Case& each : cases) {
    const at::Tensor result = each.call();
    EXPECT_EQ(result.scalar_type(), at::kFloat) << each.name;
    EXPECT_NEAR(result.item<double>(), each.exact, each.exact * 70000 * 0x1p-24) << each.name;
  }
}

// Angles of rotary positions, frequencies times positions. In 16 bits the positions themselves
// become equal; in FP32 each product is rounded once, at most 2^-24 of an angle below `length`, and
// the slope of the cosine is at most 1.
TEST(ShippedPolicies, GenomicsComputesPositionsInFp32) {
  std::vector<float> frequencies;
  frequencies.reserve(16);
  for (int c = 0; c < 16; ++c) {
    frequencies.push_back(static_cast<float>(std::pow(1e4, -c / 16.0)));
  }
  const at::Tensor inverse = at::tensor(frequencies).unsqueeze(0);
  for (const char* compute : {"bf16", "fp16"}) {
    for (const int64_t length : {512, 2048, 65536}) {
      SCOPED_TRACE(concat(compute, " ", length));
      const at::Tensor positions = at::arange(length, at::kFloat).unsqueeze(1);
      const at::Tensor exact = positions.to(at::kDouble).mul(inverse.to(at::kDouble)).cos();
      const Policy policy = find_policy(concat("genomics compute=", compute));
      const ParameterFormats formats(policy, {});
      const Autocast region(policy, formats);
      EXPECT_NE(at::matmul(positions, inverse).scalar_type(), at::kFloat);
      const tensor::Scope scope("rotary_position");
      const at::Tensor angles = at::matmul(positions, inverse);
      EXPECT_EQ(angles.scalar_type(), at::kFloat);
      const double error = angles.to(at::kDouble).cos().sub(exact).abs().max().item<double>();
      EXPECT_LE(error, static_cast<double>(length) * 0x1p-24);
    }
  }
}

// Under at::autocast it asks for a BF16 primitive that many CPUs lack.
TEST(ShippedPolicies, AnLstmRunsInARegion) {
  const at::Tensor x = at::ones({3, 2, 8});
  const std::vector<at::Tensor> state = {at::zeros({1, 2, 8}), at::zeros({1, 2, 8})};
  const std::vector<at::Tensor> weights = {at::full({32, 8}, 0.1F).requires_grad_(),
                                           at::full({32, 8}, 0.1F).requires_grad_()};
  for (const char* policy : {"torch-fixed compute=bf16", "torch-fixed compute=fp16", "lean"}) {
    const Autocast region(find_policy(policy));
    const at::Tensor y = std::get<0>(
        at::lstm(x, state, weights, /*has_biases=*/false, 1, 0, /*train=*/true, false, false));
    y.sum().backward();
    EXPECT_TRUE(y.isfinite().all().item<bool>()) << policy;
    EXPECT_EQ(weights[0].grad().scalar_type(), at::kFloat) << policy;
  }
}

// Weights of two layers of both directions with biases: of a state of 4 for inputs of 8.
std::vector<at::Tensor> recurrent_weights(int64_t gates) {
  std::vector<at::Tensor> weights;
  for (const int64_t inputs : {8, 8, 8, 8}) {
    weights.push_back(at::full({4 * gates, inputs}, 0.1F).requires_grad_());
    weights.push_back(at::full({4 * gates, 4}, 0.1F).requires_grad_());
    weights.push_back(at::zeros({4 * gates}).requires_grad_());
    weights.push_back(at::zeros({4 * gates}).requires_grad_());
  }
  return weights;
}

// Trained or not, with what LibTorch dispatches to other kernels: gradients off, packed sequences.
TEST(ShippedPolicies, EveryRecurrentLayerRunsInARegion) {
  const at::Tensor x = at::ones({3, 2, 8});
  const at::Tensor packed = at::ones({5, 8});
  const at::Tensor sizes = at::tensor({2, 2, 1}).to(at::kLong);
  const at::Tensor h = at::zeros({4, 2, 4});
  using Layer = std::function<at::Tensor(bool train)>;
  const auto of_gates = [](int64_t gates) { return recurrent_weights(gates); };
  const std::vector<at::Tensor> w4 = of_gates(4);
  const std::vector<at::Tensor> w3 = of_gates(3);
  const std::vector<at::Tensor> w1 = of_gates(1);
  const std::vector<std::pair<const char*, Layer>> layers = {
      {"lstm",
       [&](bool train) {
         return std::get<0>(at::lstm(x, {h, h}, w4, true, 2, 0, train, true, false));
       }},
      {"packed lstm",
       [&](bool train) {
         return std::get<0>(at::lstm(packed, sizes, {h, h}, w4, true, 2, 0, train, true));
       }},
      {"gru",
       [&](bool train) { return std::get<0>(at::gru(x, h, w3, true, 2, 0, train, true, false)); }},
      {"rnn_tanh",
       [&](bool train) {
         return std::get<0>(at::rnn_tanh(x, h, w1, true, 2, 0, train, true, false));
       }},
      {"rnn_relu",
       [&](bool train) {
         return std::get<0>(at::rnn_relu(x, h, w1, true, 2, 0, train, true, false));
       }},
      {"lstm_cell",
       [&](bool /*train*/) {
         return std::get<0>(at::lstm_cell(x[0], {h[0], h[0]}, w4[0], w4[1], w4[2], w4[3]));
       }},
      {"gru_cell",
       [&](bool /*train*/) { return at::gru_cell(x[0], h[0], w3[0], w3[1], w3[2], w3[3]); }}};
  for (const char* policy :
       {"torch-fixed compute=bf16", "torch-fixed compute=fp16", "lean", "keras"}) {
    for (const auto& [name, layer] : layers) {
      SCOPED_TRACE(concat(policy, ", ", name));
      const Autocast region(find_policy(policy));
      const at::Tensor y = layer(/*train=*/true);
      EXPECT_TRUE(y.isfinite().all().item<bool>());
      EXPECT_NO_THROW(y.to(at::kFloat).sum().backward());
      {
        const at::NoGradGuard no_grad;
        EXPECT_TRUE(layer(/*train=*/false).isfinite().all().item<bool>());
      }
      const c10::InferenceMode inference;
      EXPECT_TRUE(layer(/*train=*/false).isfinite().all().item<bool>());
    }
  }
}

}  // namespace
}  // namespace mantissa::amp
