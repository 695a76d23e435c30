#pragma once

#include <cstdint>

namespace mantissa::ops::cpu {

/// out[i] = x[i] * (bits[i] < threshold ? 0 : scale), to which residual[i] is added where there is
/// one. Each operation rounds once.
struct DroppedNumbers {
  const float* x;
  const float* residual;  // null: none
  const uint16_t* bits;
  int32_t threshold;
  float scale;
  int64_t count;
  float* out;
};

void drop(const DroppedNumbers& in);

}  // namespace mantissa::ops::cpu
