#pragma once

#include <c10/core/Device.h>

#include "mantissa/base/api.h"
#include "mantissa/ops/cuda/kernels.h"

namespace mantissa::ops {

/// The kernels of one type of device: with CUDA built in, those of ops/cuda. Passes over its
/// tensors are theirs, in place of compositions of ATen operations.
struct DeviceKernels {
  const cuda::Kernels* functions;
  void* (*current_stream)(c10::Device device);  // that LibTorch enqueues on
};

/// Before there are tensors of `type`; `kernels` lives as long as the program. Null takes them
/// away.
MANTISSA_API void register_device_kernels(c10::DeviceType type, const DeviceKernels* kernels);

/// Null where there are none.
MANTISSA_API const DeviceKernels* device_kernels(c10::Device device);

/// Throws Error when `error`, of one of the functions, is not 0. `what` names the pass.
void check_launch(const DeviceKernels& kernels, int error, const char* what);

}  // namespace mantissa::ops
