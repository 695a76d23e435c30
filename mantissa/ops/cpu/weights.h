#pragma once

#include <atomic>
#include <cstdint>

#include <c10/core/ScalarType.h>

#include "mantissa/numerics/rounding.h"
#include "mantissa/ops/cpu/optimizer_passes.h"

namespace mantissa::ops::cpu {

/// The FP32 weights of `count` elements from `begin` on: the master itself, or `buffer` filled.
float* load_weights(const WeightView& weight, int64_t begin, int64_t count, float* buffer);

/// Puts changed ones back: what load_weights() returned, with the same arguments.
void store_weights(const WeightView& weight, int64_t begin, int64_t count, const float* weights);

}  // namespace mantissa::ops::cpu
