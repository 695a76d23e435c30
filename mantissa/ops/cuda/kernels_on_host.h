#pragma once

/// For tests: the kernels of ops/cuda run by the host as those of the device of
/// tensor/other_device_testing.h.
namespace mantissa::ops {

/// Registers the device too. Once a program, before its tensors.
void install_kernels_on_other_device();

}  // namespace mantissa::ops
