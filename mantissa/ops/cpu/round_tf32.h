#pragma once

#include <cstdint>

namespace mantissa::ops::cpu {

/// Rounds `count` floats to a 10-bit fraction, to nearest, ties to even. In parallel.
void round_tf32(const float* source, float* target, int64_t count);

}  // namespace mantissa::ops::cpu
