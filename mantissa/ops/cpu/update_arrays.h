#pragma once

#include <cstdint>

#include "mantissa/numerics/format.h"

namespace mantissa::ops::cpu {

/// What the kernel of an update reads and writes: `count` elements of one parameter.
struct UpdateArrays {
  const void* gradient;
  float* weights;
  void* model;  // null, or gets the rounded weights
  numerics::Format model_format;
  int64_t count;
};

struct AdamwArrays : UpdateArrays {
  float* exp_avg;
  float* exp_avg_sq;
};

struct SgdArrays : UpdateArrays {
  float* momentum;  // null without
};

}  // namespace mantissa::ops::cpu
