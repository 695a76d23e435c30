#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/Context.h>
#include <c10/core/Device.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gtest/gtest.h>

namespace mantissa::tensor {

/// Devices to run a test on.
inline std::vector<at::DeviceType> tested_devices(std::vector<at::DeviceType> own) {
  own.push_back(at::kCUDA);
  return own;
}

/// Why there is no tensor on `type` in this process; empty: there can be.
inline std::string missing_device(at::DeviceType type) {
  if (type == at::kPrivateUse1) {
    // LibTorch knows one accelerator at a time.
    return missing_device(at::kCUDA).empty() ? "no device of our own where CUDA has one" : "";
  }
  if (type != at::kCUDA) {
    return "";
  }
  if (!c10::impl::hasDeviceGuardImpl(at::kCUDA)) {
    return "no CUDA device: LibTorch's CUDA part is not linked (preset cuda)";
  }
  const auto count = c10::impl::getDeviceGuardImpl(at::kCUDA)->deviceCount();
  return count > 0 ? "" : "no CUDA device: the driver shows none";
}

inline std::string device_name(const testing::TestParamInfo<at::DeviceType>& info) {
  return c10::DeviceTypeName(info.param, /*lower_case=*/true);
}

}  // namespace mantissa::tensor

/// In a test or its SetUp.
#define MANTISSA_SKIP_WITHOUT(device)                                                           \
  if (const std::string reason = ::mantissa::tensor::missing_device(device); !reason.empty()) { \
    GTEST_SKIP() << reason;                                                                     \
  }                                                                                             \
  static_assert(true)
