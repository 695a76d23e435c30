#include "mantissa/ops/norm.h"

#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/ops/rounding_bound.h"
#include "mantissa/ops/simd_target_testing.h"

// N rows, D numbers a row.
namespace mantissa::ops {
namespace {

using at::ScalarType;
using at::Tensor;

constexpr double kEps = 1e-5;

struct Inputs {
  bool rms;
  Tensor x;
  std::optional<Tensor> residual;
  Tensor weight;
  std::optional<Tensor> bias;
  Tensor grad_out;
  std::optional<Tensor> grad_sum;
  ScalarType dtype = at::kFloat;  // of the result
};

struct Results {
  Tensor sum;  // undefined without a residual
  Tensor out;
  Tensor grad_x;
  Tensor grad_residual;
  Tensor grad_weight;
  Tensor grad_bias;
};

std::optional<Tensor> leaf(const std::optional<Tensor>& tensor) {
  return tensor ? std::optional(tensor->detach().requires_grad_()) : std::nullopt;
}

Results run(const Inputs& in) {
  const Tensor x = *leaf(std::optional(in.x));
  const Tensor weight = *leaf(std::optional(in.weight));
  const std::optional<Tensor> residual = leaf(in.residual);
  const std::optional<Tensor> bias = leaf(in.bias);
  Results results;
  if (residual) {
    std::tie(results.sum, results.out) =
        in.rms ? add_rms_norm(x, *residual, weight, kEps, in.dtype)
               : add_layer_norm(x, *residual, weight, bias, kEps, in.dtype);
  } else {
    results.out =
        in.rms ? rms_norm(x, weight, kEps, in.dtype) : layer_norm(x, weight, bias, kEps, in.dtype);
  }
  std::vector<Tensor> roots = {results.out};
  std::vector<Tensor> gradients = {in.grad_out};
  if (in.grad_sum) {
    roots.push_back(results.sum);
    gradients.push_back(*in.grad_sum);
  }
  std::vector<Tensor> leaves = {x, weight};
  if (residual) {
    leaves.push_back(*residual);
  }
  if (bias) {
    leaves.push_back(*bias);
  }
  const std::vector<Tensor> found = torch::autograd::grad(roots, leaves, gradients);
  results.grad_x = found[0];
  results.grad_weight = found[1];
  if (residual) {
    results.grad_residual = found[2];
  }
  if (bias) {
    results.grad_bias = found.back();
  }
  return results;
}

struct Bounded {
  Tensor exact;
  Tensor error;  // before the one rounding
};

struct Exact {
  Bounded out;
  Bounded grad_x;
  Bounded grad_weight;
  Bounded grad_bias;
};

Tensor wide(const Tensor& tensor) { return tensor.detach().to(at::kDouble); }

// The definition in FP64 of the `sum` that was stored, and the error of FP32 arithmetic to first
// order. With c = x - mean, r = 1 / sqrt(variance + eps), unit = c r and h = weight grad_out:
//     c         eC = gamma(D) mean|x| + 2u (|x| + |mean|)
//     variance  eV = mean(2 |c| eC) + gamma(D + 2) variance; r relative eR = eV / (variance + eps)
//     / 2 + 2u unit      eU = r eC + |unit| (eR + 2u) grad_x    r (3u (|h| + |mean h|) + gamma(D +
//     2) (mean|h| + |unit| mean|h unit|)
//                  + |unit| mean(|h| eU) + eU |mean h unit|) + |grad_x| (eR + 3u) + u |grad_sum|
//     weight    sum of |grad_out| eU + gamma(N + 2) |grad_out unit|; bias gamma(N + 2) sum
//     |grad_out|
Exact exact(const Inputs& in, const Tensor& sum) {
  const double u = kFp32Roundoff;
  const Tensor x = wide(sum);
  const Tensor w = wide(in.weight);
  const Tensor g = wide(in.grad_out);
  const auto width = static_cast<double>(x.size(-1));
  const double rows = static_cast<double>(x.numel()) / width;
  const auto mean = [](const Tensor& t) { return t.mean(-1, true); };
  const Tensor centre = in.rms ? mean(x).mul(0) : mean(x);
  const Tensor c = x.sub(centre);
  const Tensor c_error =
      in.rms ? x.mul(0) : mean(x.abs()).mul(gamma(width)).add((x.abs() + centre.abs()) * 2 * u);
  const Tensor variance = mean(c.square());
  const Tensor variance_error =
      mean(c.abs().mul(c_error).mul(2).add(c_error.square())).add(variance.mul(gamma(width + 2)));
  const Tensor r = variance.add(kEps).rsqrt();
  const Tensor r_error = variance_error.div(variance.add(kEps)).mul(0.5).add(2 * u);
  const Tensor unit = c.mul(r);
  const Tensor unit_error = r.mul(c_error).add(unit.abs().mul(r_error.add(2 * u)));
  Exact result;
  result.out = {unit.mul(w), unit_error.mul(w.abs()).add(unit.mul(w).abs().mul(2 * u))};
  if (in.bias) {
    result.out.exact = result.out.exact.add(wide(*in.bias));
    result.out.error = result.out.error.add(result.out.exact.abs().mul(u));
  }
  const Tensor h = g.mul(w);
  const Tensor mean_h = in.rms ? mean(h).mul(0) : mean(h);
  const Tensor mean_product = mean(h.mul(unit));
  Tensor grad_x = h.sub(mean_h).sub(unit.mul(mean_product)).mul(r);
  Tensor grad_error =
      (h.abs() + mean_h.abs())
          .mul(3 * u)
          .add((mean(h.abs()) + unit.abs().mul(mean(h.mul(unit).abs()))).mul(gamma(width + 2)))
          .add(unit.abs().mul(mean(h.abs().mul(unit_error))))
          .add(unit_error.mul(mean_product.abs()))
          .mul(r)
          .add(grad_x.abs().mul(r_error.add(3 * u)));
  if (in.grad_sum) {
    grad_x = grad_x.add(wide(*in.grad_sum));
    grad_error = grad_error.add(grad_x.abs().mul(u));
  }
  result.grad_x = {grad_x, grad_error};
  const auto over_rows = [&](const Tensor& t) { return t.reshape({-1, x.size(-1)}).sum(0); };
  result.grad_weight = {over_rows(g.mul(unit)), over_rows(g.abs().mul(unit_error) +
                                                          g.mul(unit).abs().mul(gamma(rows + 2)))};
  result.grad_bias = {over_rows(g), over_rows(g.abs()).mul(gamma(rows + 2))};
  return result;
}

void expect_near(const Tensor& actual, const Bounded& expected) {
  expect_within(actual, expected.exact,
                after_rounding(expected.error, expected.exact, actual.scalar_type()));
}

void expect_exact(const Inputs& in) {
  const Results actual = run(in);
  EXPECT_EQ(actual.out.scalar_type(), in.dtype);
  EXPECT_EQ(actual.grad_x.scalar_type(), in.x.scalar_type());
  EXPECT_EQ(actual.grad_weight.scalar_type(), in.weight.scalar_type());
  if (in.residual) {
    const Tensor sum = wide(in.x).add(wide(*in.residual));
    expect_within(actual.sum, sum,
                  after_rounding(sum.abs().mul(kFp32Roundoff), sum, actual.sum.scalar_type()));
  }
  const Exact expected = exact(in, in.residual ? actual.sum : in.x);
  expect_near(actual.out, expected.out);
  expect_near(actual.grad_x, expected.grad_x);
  expect_near(actual.grad_weight, expected.grad_weight);
  if (in.residual) {
    EXPECT_EQ(actual.grad_residual.scalar_type(), in.residual->scalar_type());
    expect_near(actual.grad_residual, expected.grad_x);
  }
  if (in.bias) {
    expect_near(actual.grad_bias, expected.grad_bias);
  }
}

Inputs inputs(bool rms, ScalarType dtype, std::vector<int64_t> shape) {
  const int64_t width = shape.back();
  Inputs in = {
      rms,          random(shape, dtype).add(0.5), std::nullopt, random({width}, at::kFloat),
      std::nullopt, random(shape, dtype),          std::nullopt, dtype};
  if (!rms) {
    in.bias = random({width}, at::kFloat);
  }
  return in;
}

class Norm : public testing::TestWithParam<std::tuple<bool, ScalarType>> {
 protected:
  void SetUp() override { at::manual_seed(21); }
  static bool rms() { return std::get<0>(GetParam()); }
  static ScalarType dtype() { return std::get<1>(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Formats, Norm,
                         testing::Combine(testing::Bool(),
                                          testing::Values(at::kFloat, at::kBFloat16, at::kHalf)),
                         [](const auto& format) {
                           return std::string(std::get<0>(format.param) ? "rms" : "layer") +
                                  c10::toString(std::get<1>(format.param));
                         });

TEST_P(Norm, BothPassesAreWithinTheBoundOfFp32ArithmeticAndOneRounding) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{1, 2}, {3, 5}, {2, 3, 16}, {70, 33}, {1, 4099}, {300, 100}}) {
    SCOPED_TRACE(testing::PrintToString(shape));
    expect_exact(inputs(rms(), dtype(), shape));
  }
}

TEST_P(Norm, WithAnFp32ResidualAndResultsOf16Bits) {
  Inputs in = inputs(rms(), dtype(), {40, 50});
  in.residual = random({40, 50}, at::kFloat);
  for (ScalarType result : {at::kBFloat16, at::kHalf, at::kFloat}) {
    in.dtype = result;
    in.grad_out = random({40, 50}, result);
    in.grad_sum = std::nullopt;
    expect_exact(in);
    in.grad_sum = random({40, 50}, at::kFloat);
    expect_exact(in);
  }
}

TEST_P(Norm, WithAResidualAndParametersOfTheSameFormat) {
  Inputs in = inputs(rms(), dtype(), {40, 50});
  in.residual = random({40, 50}, dtype());
  in.weight = in.weight.to(dtype());
  if (in.bias) {
    in.bias = in.bias->to(dtype());
  }
  in.grad_sum = random({40, 50}, dtype());
  expect_exact(in);
}

TEST_P(Norm, EveryInstructionSet) {
  const Inputs in = inputs(rms(), dtype(), {20, 37});
  on_every_simd_target([&] { expect_exact(in); });
}

TEST_P(Norm, DoesNotDependOnTheNumberOfThreadsNorOnStrides) {
  Inputs in = inputs(rms(), dtype(), {500, 130});
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const Results one = run(in);
  at::set_num_threads(2);
  in.x = at::empty({500, 263}, in.x.options()).slice(1, 1, 261, 2).copy_(in.x);
  in.grad_out = in.grad_out.t().contiguous().t();
  const Results two = run(in);
  at::set_num_threads(before);
  EXPECT_TRUE(at::equal(one.out, two.out));
  EXPECT_TRUE(at::equal(one.grad_x, two.grad_x));
  EXPECT_TRUE(at::equal(one.grad_weight, two.grad_weight));
}

TEST_P(Norm, NanAndInfinityStayInTheirRow) {
  for (double value : {NAN, INFINITY}) {
    Inputs in = inputs(rms(), dtype(), {5, 40});
    in.x[2][3] = value;
    const Tensor nan = run(in).out.isnan().any(-1);
    EXPECT_TRUE(nan[2].item<bool>());
    EXPECT_EQ(nan.sum().item<int64_t>(), 1);
  }
}

TEST_P(Norm, NoRows) {
  const Results results = run(inputs(rms(), dtype(), {0, 8}));
  EXPECT_EQ(results.out.sizes(), at::IntArrayRef({0, 8}));
  EXPECT_EQ(results.grad_weight.count_nonzero().item<int64_t>(), 0);
}

// As on other devices.
TEST(ComposedNorm, Fp64IsExact) {
  at::manual_seed(22);
  for (bool rms : {false, true}) {
    Inputs in = inputs(rms, at::kDouble, {7, 12});
    in.residual = random({7, 12}, at::kFloat);
    in.grad_sum = random({7, 12}, at::kDouble);
    in.grad_out = in.grad_out.t().contiguous().t();
    const Results actual = run(in);
    const Exact expected = exact(in, actual.sum);
    for (const auto& [tensor, bounded] : {std::pair{actual.out, expected.out},
                                          {actual.grad_x, expected.grad_x},
                                          {actual.grad_weight, expected.grad_weight}}) {
      expect_within(tensor, bounded.exact, bounded.exact.abs().add(1).mul(1e-6));
    }
  }
}

TEST(LayerNorm, IsThatOfLibTorchToRoundings) {
  at::manual_seed(23);
  const Tensor x = random({30, 64}, at::kFloat);
  const Tensor weight = random({64}, at::kFloat);
  const Tensor bias = random({64}, at::kFloat);
  const Tensor theirs = at::layer_norm(x, {64}, weight, bias, kEps);
  EXPECT_LT(layer_norm(x, weight, bias, kEps).sub(theirs).abs().max().item<float>(), 1e-5);
}

TEST(NormErrors, SayWhatIsWrong) {
  const Tensor x = at::ones({2, 4});
  const Tensor weight = at::ones({4});
  EXPECT_EQ(message_of<InvalidArgument>([&] { layer_norm(x, at::ones({5}), {}); }),
            "layer_norm: weight has shape [5]; pass the 4 numbers of a row of x");
  EXPECT_EQ(message_of<InvalidArgument>([&] { rms_norm(x.to(at::kLong), weight); }),
            "rms_norm: x is Long; pass Float, BFloat16, Half or Double");
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              add_rms_norm(x, at::ones({1, 4}), weight);
            }),
            "rms_norm: residual has shape [1, 4]; pass that of x, [2, 4]");
  EXPECT_EQ(message_of<InvalidArgument>([&] { layer_norm(at::ones({}), weight, {}); }),
            "layer_norm: x has shape []; pass (..., D) with numbers in a row");
}

TEST(NormErrors, SecondDerivativesAreRefused) {
  const Tensor x = at::ones({2, 4}).requires_grad_();
  const Tensor out = layer_norm(x, at::ones({4}), {});
  EXPECT_THROW(torch::autograd::grad({out.sum()}, {x}, {}, true, /*create_graph=*/true),
               Unsupported);
}

}  // namespace
}  // namespace mantissa::ops
