#pragma once

#include <ATen/core/Tensor.h>

namespace mantissa::ops {

/// One parameter, as the update of an optimizer sees it. Tensors are on the CPU.
struct WeightUpdate {
  at::Tensor master;  // FP32, dense in memory: the master, or the parameter itself when it is FP32
  at::Tensor model;   // its BF16 or FP16 copy, same strides; undefined when the parameter is FP32
  at::Tensor gradient;  // FP32, BF16 or FP16, of any strides, or sparse; times the loss scale
  double lr = 0;
  double weight_decay = 0;
};

/// What every gradient of a step has in common: 0-d FP32 tensors, undefined ones mean 1, 1 and 0.
/// An update sees gradient * ((1 / scale) * clip_factor), a product in FP32.
struct GradientUse {
  at::Tensor scale;
  at::Tensor clip_factor;
  at::Tensor found_inf;  // not 0: nothing at all is changed
};

}  // namespace mantissa::ops
