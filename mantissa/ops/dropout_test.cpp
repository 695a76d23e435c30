#include "mantissa/ops/dropout.h"

#include <cmath>
#include <string>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/base/random.h"
#include "mantissa/ops/rounding_bound.h"
#include "mantissa/ops/simd_target_testing.h"
#include "mantissa/tensor/generator_state.h"

namespace mantissa::ops {
namespace {

using at::ScalarType;
using at::Tensor;

constexpr uint64_t kSeed = 4711;

at::Generator generator() { return at::detail::createCPUGenerator(kSeed); }

// What numbers are multiplied with after the first draw of generator(), one after the other: FP64.
Tensor factors(at::IntArrayRef sizes, double threshold) {
  at::Generator source = generator();
  auto* const words = source.get<at::CPUGeneratorImpl>();
  const uint64_t seed = words->random64();
  const uint64_t stream = words->random64();
  Tensor result = at::empty(sizes, at::kDouble);
  auto* const numbers = result.mutable_data_ptr<double>();
  for (int64_t i = 0; i < result.numel(); ++i) {
    const auto block = static_cast<uint64_t>(i / 8);
    const auto four =
        philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                    static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)},
                   {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
    const uint32_t word = four[static_cast<size_t>(i % 8 / 2)];
    const uint32_t bits = i % 2 == 0 ? word & 0xFFFF : word >> 16;
    numbers[i] = bits < threshold ? 0 : 65536 / (65536 - threshold);
  }
  return result;
}

// The product as FP32 rounds it, and the rounding to the dtype of the tensor.
Tensor product(const Tensor& tensor, const Tensor& factor) {
  return tensor.to(at::kFloat).mul(factor.to(at::kFloat)).to(tensor.scalar_type());
}

struct Both {
  Tensor out;
  Tensor gradient;
};

Both both_passes(const Tensor& x_in, double p, const Tensor& grad_out) {
  const Tensor x = x_in.detach().requires_grad_();
  const Tensor out = dropout(x, p, true, generator());
  return {out.detach(), torch::autograd::grad({out}, {x}, {grad_out})[0]};
}

class Dropout : public testing::TestWithParam<ScalarType> {
 protected:
  void SetUp() override { at::manual_seed(41); }
  static ScalarType dtype() { return GetParam(); }

  static void expect_definition(at::IntArrayRef sizes, double p, double threshold) {
    SCOPED_TRACE(testing::Message() << sizes << ", p " << p);
    const Tensor x = random(sizes, dtype());
    const Tensor grad_out = random(sizes, dtype());
    const Tensor factor = factors(sizes, threshold);
    const Both actual = both_passes(x, p, grad_out);
    EXPECT_TRUE(at::equal(actual.out, product(x, factor)));
    EXPECT_TRUE(at::equal(actual.gradient, product(grad_out, factor)));
  }
};

INSTANTIATE_TEST_SUITE_P(Formats, Dropout, testing::Values(at::kFloat, at::kBFloat16, at::kHalf),
                         testing::PrintToStringParamName());

TEST_P(Dropout, BothPassesAreTheDefinitionBitForBit) {
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{}, {1}, {7}, {3, 5}, {4095}, {4096}, {3, 1367}, {2, 3, 4099}}) {
    expect_definition(sizes, 0.5, 32768);
    expect_definition(sizes, 0.1, 6554);
  }
}

// 0.1 is between two multiples of 2^-16; what is very near to 0 or 1 stays random.
TEST_P(Dropout, PIsRoundedTo16BitsButToNeitherZeroNorOne) {
  expect_definition({9000}, 0.25 + 0x1p-18, 16384);
  expect_definition({9000}, 0.25 + 0x1p-16, 16385);
  expect_definition({9000}, 1e-12, 1);
  expect_definition({9000}, 1 - 1e-12, 65535);
}

TEST_P(Dropout, EveryInstructionSet) {
  on_every_simd_target([] {
    expect_definition({4097}, 0.3, 19661);
    expect_definition({37}, 0.3, 19661);
  });
}

TEST_P(Dropout, ThreadsAndStridesDoNotMatter) {
  const Tensor x = random({70, 501}, dtype());
  const Tensor grad_out = random({70, 501}, dtype());
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const Both one = both_passes(x, 0.3, grad_out);
  at::set_num_threads(3);
  const Tensor strided = at::empty({70, 1003}, x.options()).slice(1, 1, 1003, 2).copy_(x);
  const Both three = both_passes(strided, 0.3, grad_out.t().contiguous().t());
  at::set_num_threads(before);
  EXPECT_TRUE(at::equal(one.out, three.out));
  EXPECT_TRUE(at::equal(one.gradient, three.gradient));
  EXPECT_TRUE(three.out.is_contiguous());
}

// Product and sum in FP32, a rounding each, and that to the dtype.
TEST_P(Dropout, AddIsOneRoundingOfTheFp32Sum) {
  for (const ScalarType other : {at::kFloat, dtype()}) {
    for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{3, 5}, {5, 2001}}) {
      const Tensor x = random(sizes, dtype()).requires_grad_();
      const Tensor residual = random(sizes, other).requires_grad_();
      const Tensor grad_out = random(sizes, other);
      const Tensor factor = factors(sizes, 6554);
      const Tensor out = dropout_add(x, residual, 0.1, true, generator());
      const Tensor branch = x.detach().to(at::kFloat).mul(factor.to(at::kFloat));
      EXPECT_TRUE(at::equal(out.detach(), branch.add(residual.detach()).to(other)));
      const auto gradients = torch::autograd::grad({out}, {x, residual}, {grad_out});
      EXPECT_TRUE(at::equal(
          gradients[0], grad_out.to(at::kFloat).mul(factor.to(at::kFloat)).to(x.scalar_type())));
      EXPECT_TRUE(at::equal(gradients[1], grad_out));
    }
  }
}

TEST_P(Dropout, OnlyWhatRequiresAGradientGetsOne) {
  const Tensor x = random({4, 9}, dtype());
  EXPECT_FALSE(dropout(x, 0.5).requires_grad());
  EXPECT_FALSE(dropout_add(x, x, 0.5).requires_grad());
  const Tensor leaf = random({4, 9}, dtype()).requires_grad_();
  const Tensor grad_out = random({4, 9}, dtype());
  const Tensor factor = factors({4, 9}, 32768);
  const auto gradient = [&](const Tensor& out) {
    return torch::autograd::grad({out}, {leaf}, {grad_out})[0];
  };
  EXPECT_TRUE(at::equal(gradient(dropout_add(x, leaf, 0.5, true, generator())), grad_out));
  EXPECT_TRUE(
      at::equal(gradient(dropout_add(leaf, x, 0.5, true, generator())), product(grad_out, factor)));
}

// The derivative of the gradient by its own gradient is the factor again.
TEST_P(Dropout, GradientsCanBeDifferentiated) {
  const Tensor x = random({30}, dtype()).requires_grad_();
  const Tensor grad_out = random({30}, dtype()).requires_grad_();
  const Tensor out = dropout(x, 0.25, true, generator());
  const Tensor gradient = torch::autograd::grad({out}, {x}, {grad_out}, true, true)[0];
  const Tensor ones = at::ones({30}, x.options());
  EXPECT_TRUE(at::equal(torch::autograd::grad({gradient}, {grad_out}, {ones})[0],
                        product(ones, factors({30}, 16384))));
}

// As of x * mask, and so as in LibTorch.
TEST_P(Dropout, AnInfinityOrNanThatIsDroppedIsNan) {
  for (const float value : {INFINITY, -INFINITY, NAN}) {
    const Tensor x = at::full({64}, value, dtype());
    const Tensor dropped = factors({64}, 32768).eq(0);
    ASSERT_TRUE(dropped.any().item<bool>());
    const Tensor nan = dropout(x, 0.5, true, generator()).isnan();
    EXPECT_TRUE(at::equal(nan, std::isnan(value) ? at::ones({64}, at::kBool) : dropped));
    EXPECT_TRUE(at::dropout(x, 0.5, true).isnan().any().item<bool>());
    EXPECT_TRUE(dropout(x, 1).isnan().all().item<bool>());
  }
}

TEST_P(Dropout, NothingIsDrawnWhereNothingIsRandom) {
  const Tensor state = tensor::cpu_generator_state();
  const Tensor x = random({8}, at::kFloat).to(dtype());
  tensor::set_cpu_generator_state(state);
  EXPECT_TRUE(ops::dropout(x, 0.5, /*train=*/false).is_same(x));
  EXPECT_TRUE(dropout(x, 0).is_same(x));
  EXPECT_TRUE(at::equal(dropout(x, 1), at::zeros({8}, x.options())));
  EXPECT_TRUE(at::equal(dropout_add(x, x, 0.5, /*train=*/false), x.add(x)));
  EXPECT_TRUE(at::equal(dropout_add(x, x, 1), x));
  EXPECT_EQ(dropout(at::empty({0, 3}, x.options()), 0.5).sizes(), at::IntArrayRef({0, 3}));
  EXPECT_TRUE(at::equal(tensor::cpu_generator_state(), state));
}

TEST(DropoutGenerator, TheDefaultOnesStateDecides) {
  const Tensor x = at::ones({999});
  at::manual_seed(3);
  const Tensor first = dropout(x, 0.5);
  const Tensor state = tensor::cpu_generator_state();
  const Tensor second = dropout(x, 0.5);
  EXPECT_FALSE(at::equal(first, second));
  tensor::set_cpu_generator_state(state);
  EXPECT_TRUE(at::equal(dropout(x, 0.5), second));
  at::manual_seed(3);
  EXPECT_TRUE(at::equal(dropout_add(x, at::zeros({999}), 0.5), first));
}

TEST(DropoutGenerator, AnotherOneLeavesTheDefaultOneAlone) {
  const Tensor x = at::ones({999});
  const Tensor state = tensor::cpu_generator_state();
  const at::Generator own = generator();
  const Tensor first = dropout(x, 0.5, true, own);
  EXPECT_FALSE(at::equal(dropout(x, 0.5, true, own), first));
  EXPECT_TRUE(at::equal(dropout(x, 0.5, true, generator()), first));
  EXPECT_TRUE(at::equal(tensor::cpu_generator_state(), state));
}

// As of a dtype or device without a kernel: the same mask.
TEST(ComposedDropout, Fp64HasTheMaskOfTheOthers) {
  const Tensor x = random({3, 3001}, at::kFloat).to(at::kDouble);
  const Tensor grad_out = random({3, 3001}, at::kFloat).to(at::kDouble);
  const Tensor factor = factors(x.sizes(), 6554);
  const Both actual = both_passes(x, 0.1, grad_out);
  EXPECT_TRUE(at::equal(actual.out, x.mul(factor)));
  EXPECT_TRUE(at::equal(actual.gradient, grad_out.mul(factor)));
  const Tensor sum = dropout_add(x.to(at::kFloat), x, 0.1, true, generator());
  EXPECT_TRUE(at::equal(sum, x.mul(factor).add(x)));
  EXPECT_EQ(dropout(x, 1).count_nonzero().item<int64_t>(), 0);
}

constexpr int64_t kNumbers = 1 << 20;

Tensor dropped_places(double p) { return dropout(at::ones({kNumbers}), p).eq(0); }

// Of kNumbers independent events of probability p each: by Hoeffding's inequality off by more with
// probability 2 exp(-2 t^2 / n) = 1e-9.
void expect_frequency(const Tensor& events, double p) {
  const auto n = static_cast<double>(events.numel());
  EXPECT_NEAR(events.sum().item<double>(), n * p, std::sqrt(n * std::log(2e9) / 2));
}

TEST(DropoutStatistics, PlacesAreDroppedWithTheirProbability) {
  at::manual_seed(7);
  for (const double threshold : {6554.0, 32768.0, 58982.0}) {
    expect_frequency(dropped_places(threshold / 65536), threshold / 65536);
  }
}

TEST(DropoutStatistics, NeighboursAndCallsAreIndependent) {
  at::manual_seed(8);
  const double p = 0.25;
  const Tensor a = dropped_places(p);
  const Tensor b = dropped_places(p);
  expect_frequency(a.logical_and(b), p * p);
  // Pairs (0, d), (2 d, 3 d), ... in every phase of a group of eight and beyond do not overlap.
  for (const int64_t distance : {1, 2, 4, 8, 64, 4096}) {
    const Tensor pairs = a.view({-1, 2, distance});
    expect_frequency(pairs.select(1, 0).logical_and(pairs.select(1, 1)), p * p);
  }
}

TEST(DropoutErrors, SayWhatIsWrong) {
  const Tensor x = at::ones({2, 4});
  EXPECT_EQ(message_of<InvalidArgument>([&] { dropout(x, 1.5); }),
            "dropout: p is 1.5; pass a probability from 0 to 1");
  EXPECT_EQ(message_of<InvalidArgument>([&] { ops::dropout(x, NAN, false); }),
            "dropout: p is nan; pass a probability from 0 to 1");
  EXPECT_EQ(message_of<InvalidArgument>([&] { dropout(x.to(at::kLong), 0.5); }),
            "dropout: x is Long; pass Float, BFloat16, Half or Double");
  EXPECT_EQ(message_of<InvalidArgument>([&] { dropout_add(x, x.to(at::kInt), 0.5); }),
            "dropout_add: residual is Int; pass Float, BFloat16, Half or Double");
  EXPECT_EQ(message_of<InvalidArgument>([&] { dropout_add(x, at::ones({4}), 0.5); }),
            "dropout_add: residual has shape [4]; pass that of x, [2, 4]");
}

}  // namespace
}  // namespace mantissa::ops
