#pragma once

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"

namespace mantissa::tensor {

/// The state of LibTorch's default CPU generator, which dropout and other operations draw from: a
/// copy, uint8.
MANTISSA_API at::Tensor cpu_generator_state();

/// Throws what LibTorch throws for a tensor that is no such state.
MANTISSA_API void set_cpu_generator_state(const at::Tensor& state);

}  // namespace mantissa::tensor
