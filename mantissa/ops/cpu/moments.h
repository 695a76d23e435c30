#pragma once

#include <cstdint>

#include "mantissa/ops/cpu/optimizer_passes.h"

namespace mantissa::ops::cpu {

inline bool is_fp32(const MomentView& moment) { return moment.dtype == c10::ScalarType::Float; }

/// The FP32 moments of `count` elements from `begin` on: themselves, or `buffer` filled. `begin` is
/// that of a block of the pass, which is several blocks of codes.
float* load_moments(const MomentView& moment, int64_t begin, int64_t count, float* buffer);

/// Puts changed ones back: what load_moments() returned, with the same arguments.
void store_moments(const MomentView& moment, int64_t begin, int64_t count, const float* values);

}  // namespace mantissa::ops::cpu
