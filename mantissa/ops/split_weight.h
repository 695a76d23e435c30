#pragma once

#include <bit>
#include <cstdint>

namespace mantissa::ops {

/// An FP32 number as the pattern of the nearest BF16 number and the difference of its own pattern
/// to that: two halves of 16 bits.
struct SplitWeight {
  uint16_t model;
  int16_t rest;
};

/// Exact for every number but NaN, which becomes the quiet NaN of BF16. A tie goes away from zero:
/// toward the even one, the difference would need a 17th bit.
inline SplitWeight split_weight(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (value != value) {
    return {0x7fc0, 0};
  }
  const uint32_t rounded = (bits + 0x8000) >> 16;
  return {static_cast<uint16_t>(rounded), static_cast<int16_t>(bits - (rounded << 16))};
}

inline float join_weight(const SplitWeight& split) {
  return std::bit_cast<float>((static_cast<uint32_t>(split.model) << 16) +
                              static_cast<uint32_t>(static_cast<int32_t>(split.rest)));
}

}  // namespace mantissa::ops
