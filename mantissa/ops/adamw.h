#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"
#include "mantissa/ops/moment.h"
#include "mantissa/ops/weight_update.h"

namespace mantissa::ops {

struct AdamwOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;  // outside of the root; FP32, so it does not vanish as it would in FP16
  WeightDecay decay = WeightDecay::decoupled;  // l2: Adam
};

struct AdamwParameter {
  WeightUpdate weight;
  Moment exp_avg;     // CodeMap::with_sign
  Moment exp_avg_sq;  // CodeMap::nonnegative
  at::Tensor step;    // 0-d int64: how many updates this parameter has had
};

/// One AdamW step in one pass: with g the unscaled and clipped gradient,
///     m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;  step += 1
///     w -= lr / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + eps) + lr weight_decay w
/// in FP32, the whole decrement before it is taken off w; then the model copy is w rounded to
/// nearest even. Loshchilov and Hutter (2019). With l2 decay it is Adam (Kingma and Ba, 2015, with
/// an L2 penalty as in torch.optim.Adam): the decay leaves the last line and weight_decay * w is
/// added to g, so that the division by the root scales it too.
///
/// Moments that are not FP32 are read and stored in blocks on the stack: no copy of them exists.
/// Elementwise, or by blocks of 256: the same for any number of threads. When `use.found_inf` is
/// not 0 nothing changes, and it returns false.
MANTISSA_API bool adamw_(const std::vector<AdamwParameter>& parameters, const AdamwOptions& options,
                         const GradientUse& use = {});

/// The same as ATen operations, on any device and without waiting for it: weights, moments and step
/// counts are selected there by `use.found_inf`. It rounds where the reference does; only
/// 1 - beta^step, taken from the count on the device, may differ by 2^-52 / (1 - beta) before it is
/// rounded to FP32. The rate is lr * lr_factor. FP32 moments and rounding to nearest only
/// (Unsupported otherwise). Temporaries of one parameter at a time, up to 24 bytes an element.
MANTISSA_API void adamw_composed_(const std::vector<AdamwParameter>& parameters,
                                  const AdamwOptions& options, const GradientUse& use = {});

/// The same by the kernels of the device where it has some (device_kernels.h), in one pass and
/// without waiting: bit for bit what `adamw_` does but for the step's constants, as composed. All
/// roundings and BF16 moments, no blockwise8 (Unsupported). Streams of random numbers are those of
/// `use.stream_offset` on. Composed where there are no kernels.
MANTISSA_API void adamw_enqueued_(const std::vector<AdamwParameter>& parameters,
                                  const AdamwOptions& options, const GradientUse& use = {});

/// The same, element by element: bit for bit what `adamw_` must do.
MANTISSA_API bool adamw_reference_(const std::vector<AdamwParameter>& parameters,
                                   const AdamwOptions& options, const GradientUse& use = {});

}  // namespace mantissa::ops
