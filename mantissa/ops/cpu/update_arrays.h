#pragma once

#include <cstdint>

namespace mantissa::ops::cpu {

/// What the kernels of an update read and write: `count` elements of one parameter. `gradient` is
/// of the parameter's format of gradients; `model`, null or of its model's format, gets the rounded
/// weights.
struct AdamwArrays {
  const void* gradient;
  float* weights;
  float* exp_avg;
  float* exp_avg_sq;
  void* model;
  int64_t count;
};

struct SgdArrays {
  const void* gradient;
  float* weights;
  float* momentum;  // null without
  void* model;
  int64_t count;
};

}  // namespace mantissa::ops::cpu
