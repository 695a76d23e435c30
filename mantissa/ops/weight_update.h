#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"
#include "mantissa/numerics/rounding.h"

namespace mantissa::ops {

/// `l2` adds weight_decay * w to the gradient; `decoupled` takes lr * weight_decay * w off w.
enum class WeightDecay : uint8_t { decoupled, l2 };

/// One parameter, as the update of an optimizer sees it. Tensors are on one device, for the fused
/// passes the CPU. Where the FP32 weight w is, by what is defined:
///
/// | master | model      | rest               | w                                      | bytes |
/// | ------ | ---------- | ------------------ | -------------------------------------- | ----- |
/// | FP32   | -          | -                  | the master, which is the parameter     | 4     |
/// | FP32   | BF16, FP16 | -                  | the master; model = w, rounded         | 6     |
/// | -      | BF16       | int16              | both together, exactly ("split")       | 4     |
/// | -      | BF16, FP16 | as the model's     | model + rest ("compensated")           | 4     |
/// | -      | BF16, FP16 | -                  | the model; w is rounded at each step   | 2     |
///
/// Split: the model is w rounded to nearest, a tie away from zero, and `rest` the difference of the
/// bit patterns. FP16 has another exponent and cannot be split so.
/// Compensated: rest = w - model, rounded; Kahan's compensation as in "Revisiting BFloat16
/// Training" (Zamirai et al., 2021).
struct WeightUpdate {
  at::Tensor master;    // FP32, dense in memory
  at::Tensor model;     // BF16 or FP16, same strides
  at::Tensor gradient;  // FP32, BF16 or FP16, of any strides, or sparse; times the loss scale
  double lr = 0;
  double weight_decay = 0;
  at::Tensor rest;  // same strides
  // Of a model without master and rest: nearest_even or stochastic. Element i then takes word i of
  // the stream Random(seed, stream); a step needs a stream of its own.
  numerics::Rounding rounding = numerics::Rounding::nearest_even;
  uint64_t seed = 0;
  uint64_t stream = 0;
  // 0-d int64, or undefined. With rounding to nearest: the elements whose update was not zero and
  // is lost, because it is less than half of the weight's rounding step, are added to it.
  at::Tensor lost;
  // 0-d FP64 or FP32, for composed and enqueued passes: the rate is lr * lr_factor. Undefined: lr.
  at::Tensor lr_factor;
};

/// A copy of the FP32 weights, wherever and on whatever device they are, with the strides of the
/// model.
MANTISSA_API at::Tensor weights_of(const WeightUpdate& update);

/// What every gradient of a step has in common: 0-d FP32 tensors, undefined ones mean 1, 1 and 0.
/// An update sees gradient * ((1 / scale) * clip_factor), a product in FP32.
struct GradientUse {
  at::Tensor scale;
  at::Tensor clip_factor;
  at::Tensor found_inf;  // not 0: nothing at all is changed
  // 0-d int64 on the device, for the enqueued passes, or undefined: added to all streams of random
  // numbers, for steps that only the device counts.
  at::Tensor stream_offset = {};
};

}  // namespace mantissa::ops
