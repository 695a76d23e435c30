#include "mantissa/ops/device_precision.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

namespace mantissa::ops {
namespace {

TEST(DevicePrecision, SaysWhatLibTorchIsTold) {
  const DevicePrecision before = device_precision();
  EXPECT_TRUE(before.reduced_sums) << "LibTorch's own setting, which a program has to change";
  {
    const DevicePrecisionGuard guard(DevicePrecision{});
    EXPECT_EQ(device_precision(), DevicePrecision());
    EXPECT_FALSE(at::globalContext().allowTF32CuBLAS());
    EXPECT_FALSE(at::globalContext().allowTF32CuDNN());
    {
      const DevicePrecisionGuard inner({.tf32 = true});
      EXPECT_TRUE(at::globalContext().allowTF32CuBLAS());
      EXPECT_TRUE(at::globalContext().allowTF32CuDNN());
      EXPECT_EQ(device_precision(), (DevicePrecision{.tf32 = true}));
    }
    EXPECT_EQ(device_precision(), DevicePrecision());
    at::globalContext().setAllowFP16ReductionCuBLAS(true);
    EXPECT_TRUE(device_precision().reduced_sums);
  }
  EXPECT_EQ(device_precision(), before);
}

}  // namespace
}  // namespace mantissa::ops
