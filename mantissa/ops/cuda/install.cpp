// Registers the kernels of this folder for CUDA, when the library is loaded.
#include <c10/cuda/CUDAStream.h>

#include "mantissa/ops/cuda/kernels.h"
#include "mantissa/ops/device_kernels.h"

namespace mantissa::ops {
namespace {

void* current_stream(c10::Device device) {
  return c10::cuda::getCurrentCUDAStream(device.index()).stream();
}

const bool registered = [] {
  static const DeviceKernels kernels = {&cuda::kernels(), current_stream};
  register_device_kernels(c10::DeviceType::CUDA, &kernels);
  return true;
}();

}  // namespace
}  // namespace mantissa::ops
