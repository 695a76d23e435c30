// The block of a product that is held in registers. Included once for each instruction set by files
// that Highway compiles so.
#if defined(MANTISSA_OPS_CPU_REGISTER_BLOCK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_OPS_CPU_REGISTER_BLOCK_INL_H
#undef MANTISSA_OPS_CPU_REGISTER_BLOCK_INL_H
#else
#define MANTISSA_OPS_CPU_REGISTER_BLOCK_INL_H
#endif

#include <algorithm>
#include <cstdint>

#include <hwy/highway.h>

#include "mantissa/ops/cpu/read_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::ops::cpu {
namespace HWY_NAMESPACE {
// Two vectors of columns (four numbers where vectors are one), and as many rows as leave registers
// for them and for one of `a`: AVX-512 and NEON have 32 registers, the others 16.
#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3) || HWY_ARCH_ARM
constexpr int64_t kRows = 12;
#else
constexpr int64_t kRows = 6;
#endif
constexpr int64_t kVectors = std::max<int64_t>(2, 4 / kLanes);
constexpr int64_t kCols = kVectors * kLanes;

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::ops::cpu
HWY_AFTER_NAMESPACE();

#endif
