#pragma once

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"

namespace mantissa::amp {

/// Multiplies dense gradients (FP32, FP64 and BF16 mixed, on the device of `scale`) in place by
/// 1 / scale. Returns 1, 0-d FP32, when any value is not finite, else 0. Values are tested before
/// they are multiplied and, because dividing by a scale below 1 can overflow, with `below_one`
/// afterwards as well. Does not wait for the device.
at::Tensor unscale_and_check_(at::TensorList gradients, const at::Tensor& scale, bool below_one);

}  // namespace mantissa::amp
