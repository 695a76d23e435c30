#include "mantissa/ops/device_kernels.h"

#include <array>
#include <atomic>

#include "mantissa/base/error.h"

namespace mantissa::ops {
namespace {

std::atomic<const DeviceKernels*>& slot(c10::DeviceType type) {
  static std::array<std::atomic<const DeviceKernels*>, c10::COMPILE_TIME_MAX_DEVICE_TYPES> slots =
      {};
  return slots.at(static_cast<size_t>(type));
}

}  // namespace

void register_device_kernels(c10::DeviceType type, const DeviceKernels* kernels) {
  slot(type) = kernels;
}

const DeviceKernels* device_kernels(c10::Device device) { return slot(device.type()); }

void check_launch(const DeviceKernels& kernels, int error, const char* what) {
  MANTISSA_CHECK(error == 0, Error, what,
                 ": the device refused a kernel: ", kernels.functions->error_text(error),
                 "; is this library built for its architecture (mantissa doctor)?");
}

}  // namespace mantissa::ops
