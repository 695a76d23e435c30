#pragma once

#include <ATen/core/Tensor.h>

#include "mantissa/ops/moment.h"
#include "mantissa/ops/place.h"
#include "mantissa/ops/weight_update.h"

namespace mantissa::ops::composed {

/// Throws unless a composed pass can update it: all on `device`, rounding to nearest. `where`
/// begins the message.
void check_update(const WeightUpdate& update, at::Device device, const Place& where);

/// Throws unless the rate on the device, if any, is one.
void check_rate(const WeightUpdate& update, at::Device device, const Place& where);

/// Throws unless it fits the weight and is FP32.
void check_moment(const Moment& moment, const WeightUpdate& update, const Place& where);

/// Throws unless scale, clip factor and found_inf are 0-d FP32 on `device`, or undefined.
void check_use(const GradientUse& use, at::Device device, const Place& where);

/// The FP32 weights: the master itself, or a copy of what is kept elsewise.
at::Tensor load_weights(const WeightUpdate& update);

/// What an update sees: the gradient times `factor`, plus decay * w; not to be written to.
at::Tensor penalized_gradient(const WeightUpdate& update, const at::Tensor& factor,
                              WeightDecay decay, const at::Tensor& weights);

/// Takes `decrement`, and with decoupled decay rate * weight_decay * w, off `weights` and stores
/// the difference, unless `skip`. Writes to `decrement`.
void decrease_weights(const WeightUpdate& update, const at::Tensor& weights,
                      const at::Tensor& decrement, const at::Tensor& rate, WeightDecay decay,
                      const at::Tensor& skip);

}  // namespace mantissa::ops::composed
