#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"
#include "mantissa/ops/weight_update.h"

namespace mantissa::ops {

struct EmaParameter {
  WeightUpdate weight;  // of which master, model and rest are read
  at::Tensor shadow;    // FP32, as weights_of(weight)
};

/// One step of an exponential moving average of the FP32 weights w, wherever they are kept:
///     shadow += (1 - decay) (w - shadow)
/// in FP32, in one pass. Written so, and not as decay shadow + (1 - decay) w, the constant weight w
/// is a fixed point, although decay and 1 - decay are rounded. Elementwise: the same for any number
/// of threads.
MANTISSA_API void ema_(const std::vector<EmaParameter>& parameters, double decay);

/// The same as ATen operations, on any device and without waiting for it; it rounds where the
/// reference does. `rate` is 1 - decay, 0-d FP32; where `skip`, 0-d Bool, is set, nothing changes.
/// Undefined: it is not set.
MANTISSA_API void ema_composed_(const std::vector<EmaParameter>& parameters, const at::Tensor& rate,
                                const at::Tensor& skip = {});

/// The same, element by element: bit for bit what `ema_` must do.
MANTISSA_API void ema_reference_(const std::vector<EmaParameter>& parameters, double decay);

}  // namespace mantissa::ops
