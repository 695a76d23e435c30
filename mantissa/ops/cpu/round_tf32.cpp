#include "mantissa/ops/cpu/round_tf32.h"

#include <bit>

#include <ATen/Parallel.h>

namespace mantissa::ops::cpu {
namespace {

constexpr int64_t kGrain = 1 << 15;  // elements

// Adding just under half of the dropped bits' unit, or half when the kept part is odd, carries
// into the kept part exactly when it must be rounded up; a carry into the exponent is right too.
inline uint32_t round_bits(uint32_t bits) {
  const uint32_t rounded = (bits + 0xFFFU + ((bits >> 13U) & 1U)) & ~0x1FFFU;
  const bool is_nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
  return is_nan ? bits | 0x00400000U : rounded;
}

}  // namespace

void round_tf32(const float* source, float* target, int64_t count) {
  at::parallel_for(0, count, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      target[i] = std::bit_cast<float>(round_bits(std::bit_cast<uint32_t>(source[i])));
    }
  });
}

}  // namespace mantissa::ops::cpu
