#include "mantissa/ops/install_cpu_kernels.h"

#include <array>
#include <cstdlib>
#include <iostream>
#include <optional>

#include <ATen/ops/conv1d.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/ops/rounding_bound.h"
#include "mantissa/ops/tf32.h"

namespace mantissa::ops {
namespace {

using numerics::Format;

// Installation is for the life of a process, so what happens before and at it is seen in a fresh
// one: a death test of style "threadsafe" runs the program again.
class InFreshProcess : public testing::Test {
 protected:
  void SetUp() override { testing::GTEST_FLAG(death_test_style) = "threadsafe"; }
};
using InFreshProcessDeathTest = InFreshProcess;

TEST_F(InFreshProcessDeathTest, InstallationIsExplicitAndSilentAndRepeatable) {
  const auto run = [] {
    const bool before = cpu_kernels_installed();
    install_cpu_kernels();
    install_cpu_kernels();
    std::exit(!before && cpu_kernels_installed() ? 0 : 1);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), testing::Eq(""));
}

TEST_F(InFreshProcessDeathTest, WithoutInstallationTf32IsRefusedAndTheChoiceSaysSo) {
  const auto run = [] {
    for (const CpuKernelChoice& choice : cpu_kernel_choices()) {
      std::cerr << numerics::to_string(choice.format) << " " << to_string(choice.kernels) << ": "
                << choice.reason << "\n";
    }
    try {
      const Tf32Guard guard(Tf32::on);
    } catch (const InvalidArgument& error) {
      std::cerr << error.what();
      std::exit(0);
    }
    std::exit(1);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0),
              testing::Eq("bf16 stock: the CPU kernels are not installed\n"
                          "fp16 stock: the CPU kernels are not installed\n"
                          "Tf32Guard: the CPU kernels that round to TF32 are not installed; call "
                          "ops::install_cpu_kernels() first"));
}

TEST(CpuKernels, TheGuardPutsBackWhatWasSet) {
  const CpuKernels before = cpu_kernels();
  {
    const CpuKernelsGuard outer(CpuKernels::ours);
    const CpuKernelsGuard inner(CpuKernels::stock);
    EXPECT_EQ(cpu_kernels(), CpuKernels::stock);
  }
  EXPECT_EQ(cpu_kernels(), before);
}

TEST(CpuKernels, NamesRoundTripAndASlipIsCorrected) {
  for (CpuKernels kernels : {CpuKernels::automatic, CpuKernels::ours, CpuKernels::stock}) {
    EXPECT_EQ(parse_cpu_kernels(to_string(kernels)), kernels);
  }
  try {
    (void)parse_cpu_kernels("stok");
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "cpu kernels: unknown \"stok\"; did you mean \"stock\"?");
  }
}

TEST(CpuKernels, NativeUnitsDecidePerFormat) {
  const auto choice = [](Format format, const CpuFeatures& features) {
    return choose_cpu_kernels(format, features).kernels;
  };
  EXPECT_EQ(choice(Format::bf16, {.onednn = true}), CpuKernels::ours);
  EXPECT_EQ(choice(Format::fp16, {.onednn = true}), CpuKernels::ours);
  const CpuFeatures bf16_units = {.avx512_bf16 = true, .amx_bf16 = true, .onednn = true};
  EXPECT_EQ(choice(Format::bf16, bf16_units), CpuKernels::stock);
  EXPECT_EQ(choice(Format::fp16, bf16_units), CpuKernels::ours);
  EXPECT_EQ(choice(Format::bf16, {.amx_bf16 = true, .onednn = true}), CpuKernels::stock);
  EXPECT_EQ(choice(Format::fp16, {.avx512_fp16 = true, .onednn = true}), CpuKernels::stock);
  EXPECT_EQ(choice(Format::fp16, {.amx_fp16 = true, .onednn = true}), CpuKernels::stock);
  EXPECT_EQ(choice(Format::bf16, {.avx512_bf16 = true, .onednn = false}), CpuKernels::ours);
  EXPECT_THROW((void)choose_cpu_kernels(Format::fp32, {}), InvalidArgument);
}

TEST(CpuKernels, NativeUnitsDecideProductsAlone) {
  const CpuFeatures features = {.avx512_bf16 = true, .amx_bf16 = true, .onednn = true};
  for (CpuWork work : {CpuWork::attention, CpuWork::depthwise}) {
    EXPECT_EQ(choose_cpu_kernels(Format::bf16, features, work).kernels, CpuKernels::ours);
    EXPECT_EQ(choose_cpu_kernels(Format::fp16, {}, work).kernels, CpuKernels::ours);
  }
}

TEST(CpuKernels, TheReasonNamesTheUnit) {
  EXPECT_EQ(choose_cpu_kernels(Format::bf16, {.onednn = true}).reason,
            "this CPU has no BF16 units (AVX512_BF16, AMX_BF16); operands are widened to FP32");
  EXPECT_EQ(choose_cpu_kernels(Format::fp16, {.avx512_fp16 = true, .onednn = true}).reason,
            "this CPU has AVX512_FP16; LibTorch's oneDNN uses it");
  EXPECT_EQ(choose_cpu_kernels(Format::bf16, {.amx_bf16 = true}).reason,
            "this CPU has AMX_BF16, but LibTorch's oneDNN is absent or disabled; operands are "
            "widened to FP32");
}

TEST(CpuKernels, WhatHoldsFollowsTheSetting) {
  install_cpu_kernels();
  const CpuKernelsGuard automatic(CpuKernels::automatic);
  const CpuKernelChoice detected = choose_cpu_kernels(Format::bf16, detect_cpu_features());
  EXPECT_EQ(cpu_kernel_choices()[0].reason, detected.reason);
  const CpuKernelsGuard ours(CpuKernels::ours);
  EXPECT_EQ(cpu_kernel_choices()[1].kernels, CpuKernels::ours);
  EXPECT_EQ(cpu_kernel_choices()[1].reason, "set to \"ours\"");
}

using at::Tensor;

// Gradients of <linear(conv1d(x, w)), g> with respect to x, w, v, for numbers or, with absolute
// values, for sizes: v is the weight of linear.
struct Network {
  Tensor x;  // (B, C, L)
  Tensor w;  // (D, C, K)
  Tensor v;  // (O, D M), M the length after the convolution

  Tensor hidden() const { return at::conv1d(x, w); }

  std::array<Tensor, 2> convolution_gradients(const Tensor& grad_hidden) const {
    const auto [gx, gw, gb] = at::convolution_backward(grad_hidden, x, w, std::nullopt, {1}, {0},
                                                       {1}, false, {0}, 1, {true, true, false});
    return {gx, gw};
  }
};

// The error of each product is its own rounding and what its inexact factor brings along.
TEST(CpuKernels, GradientsOfA16BitNetworkAreWithinThePropagatedBound) {
  install_cpu_kernels();
  const CpuKernelsGuard ours(CpuKernels::ours);
  for (at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    at::manual_seed(19);
    const Network net = {random({4, 3, 20}, dtype).requires_grad_(),
                         random({6, 3, 5}, dtype).requires_grad_(),
                         random({7, 6 * 16}, dtype).requires_grad_()};
    const Tensor g = random({4, 7}, dtype);
    at::linear(net.hidden().flatten(1), net.v).backward(g);

    const auto wide = [](const Tensor& tensor) { return tensor.detach().to(at::kDouble); };
    const Network exact = {wide(net.x), wide(net.w), wide(net.v)};
    const Network sizes = {exact.x.abs(), exact.w.abs(), exact.v.abs()};
    const Tensor hidden = exact.hidden();
    const Tensor hidden_error = sum_bound(hidden, sizes.hidden(), 15, dtype);
    const Tensor grad_v = at::matmul(wide(g).t(), hidden.flatten(1));
    const Tensor size_v = at::matmul(wide(g).abs().t(), hidden.abs().add(hidden_error).flatten(1));
    const Tensor brought_v = at::matmul(wide(g).abs().t(), hidden_error.flatten(1));
    expect_within(net.v.grad(), grad_v,
                  sum_bound(grad_v.abs().add(brought_v), size_v, 4, dtype).add(brought_v));

    const Tensor grad_hidden = at::matmul(wide(g), exact.v).view_as(hidden);
    const Tensor size_hidden = at::matmul(wide(g).abs(), sizes.v).view_as(hidden);
    const Tensor grad_hidden_error = sum_bound(grad_hidden, size_hidden, 7, dtype);
    const auto gradients = exact.convolution_gradients(grad_hidden);
    const auto brought = sizes.convolution_gradients(grad_hidden_error);
    const auto size = sizes.convolution_gradients(grad_hidden.abs().add(grad_hidden_error));
    const std::array<double, 2> terms = {6 * 5, 4 * 16};
    const std::array<Tensor, 2> actual = {net.x.grad(), net.w.grad()};
    for (size_t i = 0; i < 2; ++i) {
      SCOPED_TRACE(i);
      expect_within(
          actual[i], gradients[i],
          sum_bound(gradients[i].abs().add(brought[i]), size[i], terms[i], dtype).add(brought[i]));
    }
  }
}

}  // namespace
}  // namespace mantissa::ops
