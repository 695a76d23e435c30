#include "mantissa/ops/activation.h"

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/silu.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/ops/rounding_bound.h"
#include "mantissa/ops/simd_target_testing.h"
#include "mantissa/tensor/recompute.h"

namespace mantissa::ops {
namespace {

using at::ScalarType;
using at::Tensor;

// The activations alone, and the gradients of their inputs: the weight is the unit matrix, so that
// products add exact zeros.
struct Results {
  Tensor out;
  std::vector<Tensor> gradients;
};

Tensor leaf(const Tensor& tensor) { return tensor.detach().requires_grad_(); }

Results gelu_alone(const Tensor& x_in, const Tensor& grad_out) {
  const Tensor x = leaf(x_in);
  const Tensor out = gelu_linear(x, at::eye(x.size(-1), x.options()));
  return {out.detach(), torch::autograd::grad({out}, {x}, {grad_out})};
}

Results swiglu_alone(const Tensor& gate_in, const Tensor& up_in, const Tensor& grad_out) {
  const Tensor gate = leaf(gate_in);
  const Tensor up = leaf(up_in);
  const Tensor out = swiglu_linear(gate, up, at::eye(gate.size(-1), gate.options()));
  return {out.detach(), torch::autograd::grad({out}, {gate, up}, {grad_out})};
}

class Activation : public testing::TestWithParam<ScalarType> {
 protected:
  void SetUp() override {
    install_cpu_kernels();
    at::manual_seed(31);
  }
  static ScalarType dtype() { return GetParam(); }
  static Tensor inputs(at::IntArrayRef shape) {
    return random(shape, at::kFloat).mul(3).to(dtype());
  }

  CpuKernelsGuard ours_{CpuKernels::ours};
};

INSTANTIATE_TEST_SUITE_P(Formats, Activation, testing::Values(at::kFloat, at::kBFloat16, at::kHalf),
                         testing::PrintToStringParamName());

constexpr double kRoot = 0.7978845608028654;  // sqrt(2 / pi)

// sigmoid(t) is off by the error of t, which is relative, times t (1 - sigmoid(t)), by 8 roundings
// of its own, and is 0 below the smallest normal number.
Tensor sigmoid_error(const Tensor& t, double roundings_of_t) {
  const Tensor s = t.sigmoid();
  return s.mul(t.abs().mul(s.mul(-1).add(1)).mul(roundings_of_t).add(8))
      .mul(kFp32Roundoff)
      .add(0x1p-126);
}

void expect_gelu(const Tensor& x_in, const Tensor& grad_out, const Results& actual) {
  const double u = kFp32Roundoff;
  const ScalarType dtype = x_in.scalar_type();
  const Tensor x = x_in.to(at::kDouble);
  const Tensor g = grad_out.to(at::kDouble);
  const Tensor t = x.add(x.pow(3).mul(0.044715)).mul(2 * kRoot);
  const Tensor s = t.sigmoid();
  const Tensor s_error = sigmoid_error(t, 6);
  const Tensor out = x.mul(s);
  expect_within(actual.out, out,
                after_rounding(x.abs().mul(s_error).add(out.abs().mul(u)), out, dtype));
  // s + x s (1 - s) t'
  const Tensor slope = x.square().mul(3 * 0.044715).add(1).mul(2 * kRoot);
  const Tensor rest = s.mul(-1).add(1);
  const Tensor exact = s.add(x.mul(s).mul(rest).mul(slope)).mul(g);
  const Tensor magnitude = x.abs().mul(slope);
  const Tensor error = s_error.add(magnitude.mul(s_error.mul(rest + s) + s.mul(u)))
                           .add(magnitude.mul(s.mul(rest).add(s.mul(u))).mul(8 * u))
                           .add(s.mul(2 * u))
                           .mul(g.abs());
  expect_within(actual.gradients[0], exact,
                after_rounding(error.add(exact.abs().mul(u)), exact, dtype));
}

TEST_P(Activation, GeluAndItsGradientAreWithinTheBoundOfFp32ArithmeticAndOneRounding) {
  const Tensor x = at::linspace(-14, 14, 923).view({71, 13}).to(dtype());
  const Tensor g = inputs({71, 13});
  expect_gelu(x, g, gelu_alone(x, g));
}

TEST_P(Activation, EveryInstructionSet) {
  const Tensor x = inputs({9, 21});
  const Tensor g = inputs({9, 21});
  on_every_simd_target([&] { expect_gelu(x, g, gelu_alone(x, g)); });
}

TEST_P(Activation, SwigluAndItsGradientsAreWithinTheBoundOfFp32ArithmeticAndOneRounding) {
  const double u = kFp32Roundoff;
  const Tensor gate = at::linspace(-30, 30, 629).view({37, 17}).to(dtype());
  const Tensor up = inputs({37, 17});
  const Tensor g = inputs({37, 17});
  const Results actual = swiglu_alone(gate, up, g);
  const Tensor x = gate.to(at::kDouble);
  const Tensor s = x.sigmoid();
  const Tensor s_error = sigmoid_error(x, 0);
  const auto near = [&](const Tensor& tensor, const Tensor& exact, const Tensor& error) {
    expect_within(tensor, exact, after_rounding(error, exact, dtype()));
  };
  const Tensor v = up.to(at::kDouble);
  const Tensor d = g.to(at::kDouble);
  const auto product = [&](const Tensor& other) {
    const Tensor exact = x.mul(s).mul(other);
    return std::pair(exact, x.mul(s_error).mul(other).abs() + exact.abs().mul(2 * u));
  };
  near(actual.out, product(v).first, product(v).second);
  near(actual.gradients[1], product(d).first, product(d).second);
  const Tensor rest = s.mul(-1).add(1);
  const Tensor derivative = s.mul(x.mul(rest).add(1));
  const Tensor error = s_error.mul(x.mul(rest).abs().add(1)) +
                       s.mul(x.abs().mul(s_error + rest.mul(2 * u)).add(4 * u));
  near(actual.gradients[0], derivative.mul(v).mul(d),
       error.add(derivative.abs().mul(4 * u)).mul(v.mul(d).abs()));
}

// In FP64 the operations are ATen's; the other formats are compared with them.
TEST_P(Activation, LinearAndItsGradientsAreThoseOfTheComposition) {
  const Tensor x = leaf(inputs({3, 5, 24}));
  const Tensor weight = leaf(random({10, 24}, dtype()));
  const Tensor bias = leaf(random({10}, dtype()));
  const Tensor g = random({3, 5, 10}, dtype());
  const auto check = [&](const Tensor& ours, const Tensor& theirs,
                         const std::vector<Tensor>& leaves) {
    const double unit =
        dtype() == at::kFloat ? kFp32Roundoff : numerics::unit_roundoff(tensor::format_of(dtype()));
    const auto found = torch::autograd::grad({ours}, leaves, {g});
    const auto expected = torch::autograd::grad({theirs}, leaves, {g.to(at::kDouble)});
    for (size_t i = 0; i < leaves.size(); ++i) {
      // An activation or gradient is rounded before it is summed over at most 24 terms, and after.
      const Tensor magnitude = expected[i].abs().max().add(1).mul(24 * 8);
      EXPECT_LE(found[i].sub(expected[i]).abs().max().item<double>(),
                magnitude.mul(unit).item<double>())
          << i;
    }
  };
  const auto wide = [](const Tensor& tensor) { return tensor.to(at::kDouble); };
  check(gelu_linear(x, weight, bias),
        at::linear(at::gelu(wide(x), "tanh"), wide(weight), wide(bias)), {x, weight, bias});
  const Tensor up = leaf(inputs({3, 5, 24}));
  check(swiglu_linear(x, up, weight, bias),
        at::linear(at::silu(wide(x)).mul(wide(up)), wide(weight), wide(bias)),
        {x, up, weight, bias});
}

// Sums of 15 numbers of about one, in FP64 throughout: FP32 would show at 2^-24.
TEST(ActivationInFp64, GradientsOfBiasesAreNotRoundedToFp32) {
  const Tensor x = at::randn({15, 6}, at::kDouble);
  const Tensor weight = at::randn({4, 6}, at::kDouble);
  const Tensor g = at::randn({15, 4}, at::kDouble);
  for (const bool gated : {false, true}) {
    const Tensor bias = leaf(at::randn({4}, at::kDouble));
    const Tensor out = gated ? swiglu_linear(x, x, weight, bias) : gelu_linear(x, weight, bias);
    const Tensor gradient = torch::autograd::grad({out}, {bias}, {g})[0];
    EXPECT_LE(gradient.sub(g.sum(0)).abs().max().item<double>(), 0x1p-45);
  }
}

TEST_P(Activation, DoesNotDependOnTheNumberOfThreadsNorOnStrides) {
  const Tensor x = inputs({200, 130});
  const Tensor g = inputs({200, 130});
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const Results one = gelu_alone(x, g);
  at::set_num_threads(2);
  const Results two = gelu_alone(x.t().contiguous().t(), g.t().contiguous().t());
  at::set_num_threads(before);
  EXPECT_TRUE(at::equal(one.out, two.out));
  EXPECT_TRUE(at::equal(one.gradients[0], two.gradients[0]));
}

TEST_P(Activation, NanInfinityAndNothing) {
  const Tensor x = at::ones({1, 3}, at::TensorOptions(dtype()));
  x[0][0] = NAN;
  x[0][1] = INFINITY;
  x[0][2] = -INFINITY;
  // One column, for NaN times the zeros of a unit matrix is NaN.
  const Tensor out = gelu_linear(x.t(), at::ones({1, 1}, x.options()));
  EXPECT_TRUE(out[0].isnan().item<bool>());
  EXPECT_TRUE(out[1].isposinf().item<bool>());
  EXPECT_TRUE(out[2].isnan().item<bool>()) << "infinity times zero, as in at::gelu";
  EXPECT_TRUE(at::gelu(x, "tanh")[0][2].isnan().item<bool>());
  EXPECT_EQ(gelu_linear(at::ones({0, 3}, x.options()), at::ones({2, 3}, x.options())).sizes(),
            at::IntArrayRef({0, 2}));
}

// The second call must compute what those behind it need, where it saves nothing itself.
TEST_P(Activation, IsComputedAgainWhereItsArgumentsNeedNoGradient) {
  const Tensor x = at::randn({3, 8}).to(dtype());
  const Tensor frozen = at::randn({6, 8}).to(dtype());
  const Tensor trained = at::randn({6, 2}).to(dtype()).requires_grad_();
  const auto function = [=](const Tensor& in) { return at::mm(gelu_linear(in, frozen), trained); };
  const auto gradient = [&](const Tensor& y) {
    return torch::autograd::grad({y}, {trained}, {at::ones_like(y)})[0];
  };
  EXPECT_TRUE(at::equal(gradient(tensor::recompute(x, function)), gradient(function(x))));
}

TEST(ActivationErrors, SayWhatIsWrong) {
  const Tensor x = at::ones({2, 4}).requires_grad_();
  EXPECT_EQ(message_of<Error>([&] {
              gelu_linear(x, at::ones({3, 5}));
            }),
            "gelu_linear: weight has shape [3, 5] for an input of shape [2, 4]; pass (outputs, "
            "features)");
  EXPECT_EQ(message_of<Error>([&] {
              swiglu_linear(x, at::ones({2, 5}), at::ones({3, 4}));
            }),
            "swiglu_linear: up has shape [2, 5]; pass the gate's, [2, 4]");
  EXPECT_EQ(message_of<Error>([&] {
              gelu_linear(x, at::ones({3, 4}, at::kHalf));
            }),
            "gelu_linear: arguments are Float and Half; pass one dtype");
  const Tensor sum = gelu_linear(x, at::ones({3, 4})).sum();
  EXPECT_THROW(torch::autograd::grad({sum}, {x}, {}, true, /*create_graph=*/true), Unsupported);
}

}  // namespace
}  // namespace mantissa::ops
