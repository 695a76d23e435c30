#include "mantissa/train/format_reason.h"

#include <gtest/gtest.h>

namespace mantissa::train {
namespace {

using monitor::OperationKind;
using monitor::OperationTime;
using monitor::Phase;
using numerics::Format;
using ops::CpuKernels;

OperationTime product(const std::string& format, const std::string& within = "aten::linear",
                      const std::string& scope = "blocks.0.mlp") {
  OperationTime row;
  row.phase = Phase::forward;
  row.scope = scope;
  row.operation = "aten::mm";
  row.within = within;
  row.kind = OperationKind::product;
  row.format = format;
  return row;
}

std::vector<ops::CpuKernelChoice> all_by(CpuKernels kernels) {
  return {{Format::bf16, kernels, "about BF16"}, {Format::fp16, kernels, "about FP16"}};
}

FormatReasons reasons(const std::string& policy, CpuKernels products = CpuKernels::stock,
                      CpuKernels attention = CpuKernels::stock) {
  return FormatReasons(amp::parse_policy(policy), {all_by(products), all_by(attention)});
}

TEST(FormatReasons, AProductIn16BitsOnUnitsNeedsNoReason) {
  const FormatReason reason = reasons("torch-fixed compute=bf16").of(product("bf16"));
  EXPECT_TRUE(reason.eligible);
  EXPECT_TRUE(reason.in_16_bits);
  EXPECT_EQ(reason.reason, "");
  EXPECT_EQ(reason.detail, "");
}

TEST(FormatReasons, WithoutUnitsItIsTheHardware) {
  const FormatReasons widened = reasons("torch-fixed compute=bf16", CpuKernels::ours);
  const FormatReason reason = widened.of(product("bf16"));
  EXPECT_TRUE(reason.in_16_bits);
  EXPECT_EQ(reason.reason, "hardware");
  EXPECT_EQ(reason.detail, "about BF16");
  OperationTime elsewhere = product("bf16");
  elsewhere.on_cpu = false;
  EXPECT_EQ(widened.of(elsewhere).reason, "") << "it is of the CPU";
}

TEST(FormatReasons, AttentionThatIsWidenedBesideUnitsHasNoKernelForThem) {
  OperationTime row = product("bf16");
  row.operation = "aten::_scaled_dot_product_flash_attention_for_cpu_backward";
  const std::string policy = "torch-fixed compute=bf16";
  EXPECT_EQ(reasons(policy, CpuKernels::stock, CpuKernels::ours).of(row).reason, "kernel");
  EXPECT_EQ(reasons(policy, CpuKernels::stock, CpuKernels::ours).of(product("bf16")).reason, "");
  EXPECT_EQ(reasons(policy, CpuKernels::ours, CpuKernels::ours).of(row).reason, "hardware");
  EXPECT_EQ(reasons(policy).of(row).reason, "");
}

TEST(FormatReasons, OnAGpuItIsTheShape) {
  OperationTime row = product("fp16");
  row.is_aligned = false;
  EXPECT_EQ(reasons("torch-fixed compute=fp16").of(row).reason, "") << "a CPU takes any";
  row.on_cpu = false;
  EXPECT_EQ(reasons("torch-fixed compute=fp16").of(row).reason, "shape");
}

TEST(FormatReasons, TheRuleOfThePolicyIsNamed) {
  const FormatReason forced = reasons("torch-fixed compute=bf16 linear=fp32").of(product("fp32"));
  EXPECT_TRUE(forced.eligible);
  EXPECT_FALSE(forced.in_16_bits);
  EXPECT_EQ(forced.reason, "policy");
  EXPECT_EQ(forced.detail, "rule fp32 of aten::linear, by linear=fp32");
  OperationTime unlisted = product("fp32", "aten::inner");
  unlisted.operation = "aten::_scaled_dot_product_flash_attention_for_cpu";
  EXPECT_EQ(reasons("torch-fixed compute=bf16").of(unlisted).detail,
            "aten::inner is not listed in torch-fixed");
  const FormatReason inner =
      reasons("torch-fixed compute=bf16 mm=fp32").of(product("fp32", "mylib::layer"));
  EXPECT_EQ(inner.detail, "rule fp32 of aten::mm, by mm=fp32");
}

TEST(FormatReasons, ARuleOfAScopeHoldsThereAlone) {
  const FormatReasons policy =
      reasons("torch-fixed compute=bf16 linear@blocks.*.attention=fp32 scope:head=fp32");
  EXPECT_EQ(policy.of(product("fp32", "aten::linear", "blocks.1.attention")).detail,
            "rule fp32 of aten::linear, by linear@blocks.*.attention=fp32");
  EXPECT_EQ(policy.of(product("fp32", "aten::linear", "head")).detail, "its scope is in fp32");
  EXPECT_EQ(policy.of(product("fp32", "aten::linear", "blocks.1.mlp")).detail.find("rule lower"),
            0U);
}

TEST(FormatReasons, AProductThatOptimizersCallIsOutsideOfTheRegion) {
  OperationTime row = product("fp32", "aten::mm", "");
  row.phase = Phase::optimizer;
  EXPECT_EQ(reasons("torch-fixed compute=bf16").of(row).detail, "outside of the autocast region");
}

TEST(FormatReasons, OfARunInFp32ItIsThePrecision) {
  const FormatReason reason = reasons("torch-fixed compute=fp32").of(product("fp32"));
  EXPECT_TRUE(reason.eligible);
  EXPECT_EQ(reason.reason, "precision");
  EXPECT_EQ(reason.detail, "the run computes in fp32");
}

TEST(FormatReasons, WhatHasNo16BitKernelSaysSo) {
  EXPECT_EQ(reasons("torch-fixed compute=bf16").of(product("fp64")).reason, "kernel");
  OperationTime fft = product("fp32", "aten::fft_rfft");
  fft.operation = "aten::_fft_r2c";
  fft.kind = OperationKind::other;
  EXPECT_EQ(reasons("torch-fixed compute=bf16").of(fft).reason, "kernel");
  EXPECT_FALSE(reasons("torch-fixed compute=bf16").of(fft).eligible);
}

TEST(FormatReasons, OtherKindsAreNotWhat16BitUnitsCompute) {
  OperationTime row = product("fp32");
  row.operation = "aten::add";
  row.kind = OperationKind::other;
  const FormatReasons policy = reasons("torch-fixed compute=bf16");
  EXPECT_FALSE(policy.of(row).eligible);
  EXPECT_EQ(policy.of(row).reason, "kind");
  row.format = "bf16";
  EXPECT_TRUE(policy.of(row).eligible) << "it reads and writes half of the bytes";
  EXPECT_EQ(policy.of(row).reason, "");
  row.kind = OperationKind::cast;
  EXPECT_EQ(policy.of(row).reason, "cast");
  EXPECT_FALSE(policy.of(row).eligible);
}

}  // namespace
}  // namespace mantissa::train
