#pragma once

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"

namespace mantissa::optim {

/// What gradients are multiplied by so that their norm is at most `max_norm` (Pascanu et al., "On
/// the difficulty of training recurrent neural networks", 2013): min(1, max_norm / (norm + 1e-6)),
/// as torch.nn.utils.clip_grad_norm_. `norm` is that of the *unscaled* gradients, as
/// Optimizer::read_gradients returns it, 0-d FP32; so is the result. Does not wait for the device.
///
/// Throws InvalidArgument unless `max_norm` is finite and positive; to train without clipping,
/// leave StepOptions::clip_factor undefined.
MANTISSA_API at::Tensor clip_factor(const at::Tensor& norm, double max_norm);

}  // namespace mantissa::optim
