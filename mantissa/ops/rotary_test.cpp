#include "mantissa/ops/rotary.h"

#include <cmath>

#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "mantissa/base/error.h"
#include "mantissa/numerics/error_bound.h"
#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/tensor/dtype.h"

namespace mantissa::ops {
namespace {

TEST(Rotary, TablesAreTheFormula) {
  const auto [cosines, sines] = rotary_tables(5, 4, 100.0, at::kDouble);
  for (int64_t t = 0; t < 5; ++t) {
    for (int64_t c = 0; c < 4; ++c) {
      const double angle = static_cast<double>(t) * (c % 2 == 0 ? 1.0 : 0.1);
      // FP32 rounding of a value in [-1, 1] moves it by at most 2^-25; the angle's own error of a
      // few double ulps is far below.
      EXPECT_NEAR(cosines[t][c].item<double>(), std::cos(angle), 0x1p-24);
      EXPECT_NEAR(sines[t][c].item<double>(), std::sin(angle), 0x1p-24);
    }
  }
}

// Positions beyond 256 would collide if they had been BF16 numbers themselves.
TEST(Rotary, A16BitTableIsTheRoundedFp32Table) {
  const auto [wide, unused] = rotary_tables(2048, 8, 1e4, at::kFloat);
  for (at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const auto [narrow, unused2] = rotary_tables(2048, 8, 1e4, dtype);
    EXPECT_TRUE(at::equal(narrow, wide.to(dtype)));
  }
}

TEST(Rotary, ScoresDependOnTheDistanceOnly) {
  // The same vector at every position: q_i . k_j must be a function of i - j.
  const at::Tensor q = at::randn({1, 8}, at::kDouble).expand({6, 8}).contiguous();
  const at::Tensor k = at::randn({1, 8}, at::kDouble).expand({6, 8}).contiguous();
  const at::Tensor scores = rotate(q, 1e4).matmul(rotate(k, 1e4).t());
  for (int64_t i = 1; i < 6; ++i) {
    // Tables are FP32-rounded (2^-25 relative each), |q||k| is below 8 * 4^2 with near certainty.
    EXPECT_NEAR(scores[i][i - 1].item<double>(), scores[1][0].item<double>(), 128 * 0x1p-22);
  }
}

TEST(Rotary, RefusesAnOddHeadWidth) {
  try {
    rotary_tables(4, 3, 1e4, at::kFloat);
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "rotary: head width 3; it must be even and positive");
  }
}

class RotaryAttention : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    install_cpu_kernels();
    at::manual_seed(5);
  }
  CpuKernelsGuard ours_{CpuKernels::ours};
};

INSTANTIATE_TEST_SUITE_P(Formats, RotaryAttention,
                         testing::Values(at::kFloat, at::kBFloat16, at::kHalf),
                         testing::PrintToStringParamName());

struct Both {
  at::Tensor out;
  at::Tensor gradient;
};

Both attend(const at::Tensor& qkv_in, const at::Tensor& grad_out, bool causal) {
  const at::Tensor qkv = qkv_in.detach().requires_grad_();
  const at::Tensor out = rotary_attention(qkv, 100, causal);
  return {out.detach(), torch::autograd::grad({out}, {qkv}, {grad_out})[0]};
}

// In FP64 it is the composition, which the other formats are compared with. On the way the rotated
// queries and keys, the result and the gradients of the three are rounded to the format: an error
// of a few units of it, of numbers up to the largest.
TEST_P(RotaryAttention, BothPassesAreThoseOfTheCompositionToAFewRoundings) {
  const double unit =
      GetParam() == at::kFloat ? 0x1p-24 : numerics::unit_roundoff(tensor::format_of(GetParam()));
  for (bool causal : {false, true}) {
    const at::Tensor qkv = at::randn({2, 37, 3, 2, 6}).to(GetParam());
    const at::Tensor grad = at::randn({2, 37, 2, 6}).to(GetParam());
    const Both actual = attend(qkv, grad, causal);
    const Both expected = attend(qkv.to(at::kDouble), grad.to(at::kDouble), causal);
    EXPECT_EQ(actual.out.scalar_type(), GetParam());
    EXPECT_TRUE(actual.out.is_contiguous());
    const auto near = [unit](const at::Tensor& a, const at::Tensor& b) {
      EXPECT_LE(a.sub(b).abs().max().item<double>(), 16 * unit * b.abs().max().item<double>());
    };
    near(actual.out, expected.out);
    near(actual.gradient, expected.gradient);
  }
}

TEST_P(RotaryAttention, StridesAndThreadsDoNotMatter) {
  const at::Tensor qkv = at::randn({3, 50, 3, 2, 8}).to(GetParam());
  const at::Tensor grad = at::randn({3, 50, 2, 8}).to(GetParam());
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const Both one = attend(qkv, grad, true);
  at::set_num_threads(2);
  const Both two = attend(qkv.transpose(0, 1).contiguous().transpose(0, 1),
                          grad.transpose(1, 2).contiguous().transpose(1, 2), true);
  at::set_num_threads(before);
  EXPECT_TRUE(at::equal(one.out, two.out));
  EXPECT_TRUE(at::equal(one.gradient, two.gradient));
}

TEST_P(RotaryAttention, Nothing) {
  const at::Tensor qkv = at::randn({0, 5, 3, 2, 8}).to(GetParam());
  EXPECT_EQ(rotary_attention(qkv, 100, true).sizes(), at::IntArrayRef({0, 5, 2, 8}));
}

TEST(RotaryAttentionErrors, SayWhatIsWrong) {
  try {
    rotary_attention(at::randn({1, 2, 3, 4}), 100, true);
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "rotary_attention: qkv has shape [1, 2, 3, 4]; pass (batch, tokens, 3, heads, "
                 "width) with an even width");
  }
}

}  // namespace
}  // namespace mantissa::ops
