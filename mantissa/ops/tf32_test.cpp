#include "mantissa/ops/tf32.h"

#include <bit>
#include <cmath>
#include <limits>
#include <thread>

#include <ATen/ops/addmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/ops/rounding_bound.h"

namespace mantissa::ops {
namespace {

using at::Tensor;

constexpr float kInf = std::numeric_limits<float>::infinity();

float rounded(float value) { return round_to_tf32(at::full({}, value, at::kFloat)).item<float>(); }

class Tf32Emulation : public testing::Test {
 protected:
  void SetUp() override {
    install_cpu_kernels();
    at::manual_seed(17);
  }
};

TEST(RoundToTf32, KeepsTenFractionBitsToNearestTiesToEven) {
  EXPECT_EQ(rounded(1 + 0x1p-10F), 1 + 0x1p-10F);
  EXPECT_EQ(rounded(1 + 0x1p-11F), 1.0F) << "a tie goes to the even neighbour below";
  EXPECT_EQ(rounded(1 + 0x3p-11F), 1 + 0x1p-9F) << "a tie goes to the even neighbour above";
  EXPECT_EQ(rounded(1 + 0x1p-11F + 0x1p-23F), 1 + 0x1p-10F);
  EXPECT_EQ(rounded(-(1 + 0x1p-11F + 0x1p-23F)), -(1 + 0x1p-10F));
  EXPECT_EQ(rounded(2 - 0x1p-23F), 2.0F) << "the carry reaches the exponent";
}

TEST(RoundToTf32, TheEndsOfTheRange) {
  const auto& format = numerics::info(numerics::Format::tf32);
  EXPECT_EQ(rounded(static_cast<float>(format.max)), static_cast<float>(format.max));
  EXPECT_EQ(rounded(std::numeric_limits<float>::max()), kInf);
  EXPECT_EQ(rounded(kInf), kInf);
  EXPECT_EQ(rounded(-kInf), -kInf);
  EXPECT_TRUE(std::signbit(rounded(-0.0F)));
  EXPECT_EQ(rounded(static_cast<float>(format.smallest_subnormal)), 0x1p-136F);
  EXPECT_EQ(rounded(0x1p-137F), 0.0F);
  EXPECT_EQ(rounded(0x1.8p-137F), 0x1p-136F);
  for (uint32_t bits : {0x7F800001U, 0x7FFFFFFFU, 0xFF800001U}) {
    EXPECT_TRUE(std::isnan(rounded(std::bit_cast<float>(bits)))) << bits;
  }
}

// The neighbours of a number on the grid of 2^-10 relative spacing, found by FP64 arithmetic.
TEST(RoundToTf32, AgreesWithRoundingInFp64) {
  at::manual_seed(3);
  const Tensor values = at::randn({10007}).mul(at::randn({10007}).mul(20).exp2());
  const Tensor result = round_to_tf32(values);
  for (int64_t i = 0; i < values.numel(); ++i) {
    const double value = values.const_data_ptr<float>()[i];
    int exponent = 0;
    const double fraction = std::frexp(value, &exponent);
    EXPECT_EQ(result.const_data_ptr<float>()[i],
              std::ldexp(std::nearbyint(std::ldexp(fraction, 11)), exponent - 11));
  }
}

TEST(RoundToTf32, TakesAnyLayoutAndKeepsDenseStrides) {
  at::manual_seed(4);
  const Tensor base = at::randn({6, 10});
  const Tensor expected = round_to_tf32(base.contiguous());
  EXPECT_TRUE(at::equal(round_to_tf32(base.t()), expected.t()));
  EXPECT_EQ(round_to_tf32(base.t()).strides(), base.t().strides());
  EXPECT_TRUE(at::equal(round_to_tf32(base.slice(1, 0, 10, 3)), expected.slice(1, 0, 10, 3)));
  EXPECT_TRUE(at::equal(round_to_tf32(base[0].expand({3, 10})), expected[0].expand({3, 10})));
  EXPECT_EQ(round_to_tf32(base.narrow(0, 0, 0)).numel(), 0);
}

TEST(RoundToTf32, RefusesOtherDtypes) {
  try {
    (void)round_to_tf32(at::randn({2}).to(at::kHalf));
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "round_to_tf32: the tensor is Half; valid: Float");
  }
}

TEST_F(Tf32Emulation, ProductsAreThoseOfRoundedFactorsAndUnroundedAddends) {
  // Integers, of which those above 2^11 are rounded: their FP32 sums are exact in every order.
  const Tensor a = at::randint(-8191, 8192, {9, 40}).to(at::kFloat);
  const Tensor b = at::randint(-9, 10, {40, 7}).to(at::kFloat);
  const Tensor c = at::randint(-8191, 8192, {9, 7}).to(at::kFloat);
  const Tensor expected = at::addmm(c, round_to_tf32(a), round_to_tf32(b));
  const Tensor plain = at::addmm(c, a, b);
  {
    const Tf32Guard guard(Tf32::on);
    EXPECT_TRUE(at::equal(at::addmm(c, a, b), expected));
    EXPECT_TRUE(at::equal(c.clone().addmm_(a, b), expected));
    EXPECT_TRUE(
        at::equal(at::linear(a, b.t(), c[0]), at::addmm(c[0], round_to_tf32(a), round_to_tf32(b))));
    EXPECT_FALSE(at::equal(at::addmm(c, a, b), plain));
  }
  EXPECT_TRUE(at::equal(at::addmm(c, a, b), plain));
}

// Rounding a gradient beforehand changes nothing but the sum of the bias.
TEST_F(Tf32Emulation, BackwardRoundsItsFactorsTooButNotTheSumOfTheBias) {
  const Tensor x = at::randn({2, 4, 20}).requires_grad_();
  const Tensor w = at::randn({6, 4, 3}).requires_grad_();
  const Tensor bias = at::randn({6}).requires_grad_();
  const Tensor grad = at::randn({2, 6, 18});
  const auto gradients = [&](const Tensor& grad_output) {
    for (const Tensor& tensor : {x, w, bias}) {
      tensor.mutable_grad() = Tensor();
    }
    at::conv1d(x, w, bias).backward(grad_output);
    return std::vector<Tensor>{x.grad(), w.grad(), bias.grad()};
  };
  std::vector<Tensor> emulated;
  std::vector<Tensor> of_rounded;
  {
    const Tf32Guard guard(Tf32::on);
    emulated = gradients(grad);
    of_rounded = gradients(round_to_tf32(grad));
  }
  EXPECT_TRUE(at::equal(emulated[0], of_rounded[0]));
  EXPECT_TRUE(at::equal(emulated[1], of_rounded[1]));
  EXPECT_FALSE(at::equal(emulated[1], gradients(grad)[1]));
  // Of FP32 terms: a TF32 rounding of them would be 2^12 times this bound.
  const Tensor exact = grad.to(at::kDouble).sum(at::IntArrayRef{0, 2});
  expect_within(
      emulated[2], exact,
      sum_bound(exact, grad.to(at::kDouble).abs().sum(at::IntArrayRef{0, 2}), 36, at::kFloat));
}

// As tensor cores would: both products have factors in TF32.
TEST_F(Tf32Emulation, AttentionRoundsQueriesKeysValuesAndProbabilities) {
  const auto qkv = [] { return at::randn({1, 2, 12, 8}); };
  const Tensor q = qkv();
  const Tensor k = qkv();
  const Tensor v = qkv();
  const Tensor plain = at::scaled_dot_product_attention(q, k, v);
  const Tf32Guard guard(Tf32::on);
  const Tensor actual = at::scaled_dot_product_attention(q, k, v);
  EXPECT_FALSE(at::equal(actual, plain));
  EXPECT_TRUE(at::equal(actual, at::scaled_dot_product_attention(round_to_tf32(q), round_to_tf32(k),
                                                                 round_to_tf32(v))));
  const auto wide = [](const Tensor& x) { return round_to_tf32(x).to(at::kDouble); };
  const Tensor p = at::matmul(wide(q), wide(k).transpose(-2, -1)).div(std::sqrt(8.0)).softmax(-1);
  const Tensor magnitude = at::matmul(p, wide(v).abs());
  const double fp32 = 2 * gamma(40) * 10;  // of scores below 10 and their softmax
  expect_within(actual, at::matmul(p, wide(v)), magnitude.mul(0x1p-11 + fp32));
}

TEST_F(Tf32Emulation, LeavesOtherDtypesAlone) {
  const Tensor a = at::randn({8, 8});
  for (at::ScalarType dtype : {at::kDouble, at::kBFloat16}) {
    const Tensor plain = at::mm(a.to(dtype), a.to(dtype));
    const Tf32Guard guard(Tf32::on);
    EXPECT_TRUE(at::equal(at::mm(a.to(dtype), a.to(dtype)), plain)) << dtype;
  }
}

TEST_F(Tf32Emulation, GuardsNestAndAreOfOneThread) {
  const Tf32Guard outer(Tf32::on);
  {
    const Tf32Guard inner(Tf32::off);
    EXPECT_EQ(tf32(), Tf32::off);
  }
  EXPECT_EQ(tf32(), Tf32::on);
  Tf32 seen = Tf32::on;
  std::thread([&] { seen = tf32(); }).join();
  EXPECT_EQ(seen, Tf32::off);
}

}  // namespace
}  // namespace mantissa::ops
