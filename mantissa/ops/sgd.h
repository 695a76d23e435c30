#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"
#include "mantissa/ops/moment.h"
#include "mantissa/ops/weight_update.h"

namespace mantissa::ops {

enum class Momentum : uint8_t { classic, nesterov };

struct SgdOptions {
  double momentum = 0.9;  // 0: none
  Momentum kind = Momentum::classic;
  WeightDecay decay = WeightDecay::decoupled;
};

struct SgdParameter {
  WeightUpdate weight;
  Moment momentum;  // CodeMap::with_sign; undefined exactly when there is no momentum
};

/// One step of SGD in one pass: with g the unscaled and clipped gradient and b the momentum,
///     b = momentum b + g;  w -= lr b          (nesterov: w -= lr (g + momentum b))
/// in FP32; then the model copy is w rounded to nearest even. Elementwise: the same for any number
/// of threads. When `use.found_inf` is not 0 nothing changes, and it returns false.
MANTISSA_API bool sgd_(const std::vector<SgdParameter>& parameters, const SgdOptions& options,
                       const GradientUse& use = {});

/// The same as ATen operations, on any device and without waiting for it, as adamw_composed_.
MANTISSA_API void sgd_composed_(const std::vector<SgdParameter>& parameters,
                                const SgdOptions& options, const GradientUse& use = {});

/// The same by the kernels of the device, as adamw_enqueued_.
MANTISSA_API void sgd_enqueued_(const std::vector<SgdParameter>& parameters,
                                const SgdOptions& options, const GradientUse& use = {});

/// The same, element by element: bit for bit what `sgd_` must do.
MANTISSA_API bool sgd_reference_(const std::vector<SgdParameter>& parameters,
                                 const SgdOptions& options, const GradientUse& use = {});

}  // namespace mantissa::ops
