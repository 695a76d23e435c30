#include "mantissa/ops/cuda/kernels_on_host.h"

#include "mantissa/ops/cuda/host_grid.h"
#include "mantissa/ops/device_kernels.h"
#include "mantissa/tensor/other_device_testing.h"

// The kernels themselves.
#include "mantissa/ops/cuda/cross_entropy.cu"
#include "mantissa/ops/cuda/gradient_pass.cu"
#include "mantissa/ops/cuda/kernels.cu"
#include "mantissa/ops/cuda/updates.cu"

namespace mantissa::ops {

void install_kernels_on_other_device() {
  tensor::other_device::register_other_device();
  cuda::host_grid::hooks() = {[] { tensor::other_device::Memory::instance().open(); },
                              [] { tensor::other_device::Memory::instance().close(); }};
  static const DeviceKernels kernels = {&cuda::kernels(),
                                        [](c10::Device) -> void* { return nullptr; }};
  register_device_kernels(at::kPrivateUse1, &kernels);
}

}  // namespace mantissa::ops
