#pragma once

#include <cstdint>

#include "mantissa/numerics/format.h"

namespace mantissa::ops::cpu {

/// out[i] = x[i] * (bits[i] < threshold ? 0 : scale), to which residual[i] is added where there is
/// one: in FP32, each operation rounds once, and to the format of the result. Arrays are fp32, bf16
/// or fp16.
struct DroppedNumbers {
  const void* x;
  numerics::Format x_format;
  const void* residual;  // in out_format; null: none
  const uint16_t* bits;
  int32_t threshold;
  float scale;
  int64_t count;
  void* out;
  numerics::Format out_format;
};

void drop(const DroppedNumbers& in);

}  // namespace mantissa::ops::cpu
