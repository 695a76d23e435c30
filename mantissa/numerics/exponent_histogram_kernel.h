#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "mantissa/numerics/exponent_histogram.h"

namespace mantissa::numerics::kernels {

/// Patterns of FP32 magnitudes: the first that does not become zero, the first that becomes normal,
/// and the first that overflows, of each of kNarrowFormats.
inline constexpr size_t kLimitsOfFormat = 3;
inline constexpr size_t kNumLimits = kLimitsOfFormat * kNarrowFormats.size();
using Limits = std::array<uint32_t, kNumLimits>;

/// Elements of one call at most: counts are of 32 bits.
inline constexpr size_t kMostElements = size_t{1} << 24;

struct ExponentCounts {
  std::array<uint32_t, 256> bins = {};         // by exponent field, those of zeros and NaNs too
  std::array<int64_t, kNumLimits> below = {};  // how many are below a limit
  int64_t zeros = 0;
  int64_t nan = 0;
  int64_t negative_infinity = 0;
  uint32_t largest = 0;                    // pattern of the largest finite magnitude
  uint32_t smallest_minus_1 = 0xFFFFFFFF;  // of the smallest that is not 0, less 1
};

/// `values`: fp32, bf16 or fp16.
ExponentCounts count_exponents(Format format, const void* values, size_t size,
                               const Limits& limits);

}  // namespace mantissa::numerics::kernels
