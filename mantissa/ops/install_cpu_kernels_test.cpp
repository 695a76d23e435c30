#include "mantissa/ops/install_cpu_kernels.h"

#include <cstdlib>
#include <iostream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"
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

}  // namespace
}  // namespace mantissa::ops
