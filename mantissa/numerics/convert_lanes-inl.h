// SIMD lanes of one number each: encoding and decoding of every format. Included once for each
// instruction set by files that Highway compiles so.
#if defined(MANTISSA_NUMERICS_CONVERT_LANES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_NUMERICS_CONVERT_LANES_INL_H
#undef MANTISSA_NUMERICS_CONVERT_LANES_INL_H
#else
#define MANTISSA_NUMERICS_CONVERT_LANES_INL_H
#endif

#include <type_traits>

#include <hwy/highway.h>

#include "mantissa/numerics/bit_pattern.h"
#include "mantissa/numerics/format.h"
#include "mantissa/numerics/rounding.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::numerics::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr hn::ScalableTag<float> kFloats;
constexpr hn::ScalableTag<uint32_t> kWords;
constexpr hn::ScalableTag<int32_t> kInts;
using Floats = hn::Vec<decltype(kFloats)>;
using Words = hn::Vec<decltype(kWords)>;
using Ints = hn::Vec<decltype(kInts)>;

// F16C rounds to nearest and reads subnormals in every mode of the processor.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)
constexpr bool kHasF16c = true;
#else
constexpr bool kHasF16c = false;
#endif

constexpr uint32_t kFloatInfinity = 0x7F800000;

constexpr bool has_fp32_exponent(Format format) { return info(format).bias == 127; }

HWY_INLINE Words word(uint32_t value) { return hn::Set(kWords, value); }

// The magnitude of a number rounded to a format with the exponent of fp32.
template <Format kFormat, Rounding kRounding>
HWY_INLINE Words round_fraction(Words m, Words random) {
  constexpr int kDrop = 23 - info(kFormat).fraction_bits;
  if constexpr (kDrop == 0) {
    return m;
  } else {
    if constexpr (kRounding == Rounding::nearest_even) {
      const Words odd = hn::And(hn::ShiftRight<kDrop>(m), word(1));
      m = hn::Add(m, hn::Add(odd, word((1U << (kDrop - 1)) - 1)));
    } else if constexpr (kRounding == Rounding::stochastic) {
      m = hn::Add(m, hn::ShiftRight<32 - kDrop>(random));
    }
    return hn::ShiftRight<kDrop>(m);
  }
}

// The magnitude of a number rounded to a format with a narrower exponent, as if that had no upper
// limit. Below the smallest normal the cut moves up, so each lane has a shift of its own.
template <Format kFormat, Rounding kRounding>
HWY_INLINE Words round_to_narrow(Words m, Words random) {
  constexpr FormatInfo kInfo = info(kFormat);
  const Words smallest = word(static_cast<uint32_t>(128 - kInfo.bias));
  const Words exponent = hn::ShiftRight<23>(m);
  const Words clamped = hn::Max(exponent, smallest);
  const Words base = hn::ShiftLeft<kInfo.fraction_bits>(hn::Sub(clamped, smallest));
  // Zero and fp32 subnormals have no leading bit, but a shift that leaves nothing of it.
  const Words significand = hn::Or(hn::And(m, word(0x7FFFFF)), word(0x800000));
  const Words shift =
      hn::Add(word(static_cast<uint32_t>(23 - kInfo.fraction_bits)), hn::Sub(clamped, exponent));
  if constexpr (kRounding == Rounding::nearest_even) {
    // A significand of 24 bits is below half of the last place for all shifts of 25 and more.
    const Words cut = hn::Min(shift, word(25));
    const Words half = hn::Shl(word(1), hn::Sub(cut, word(1)));
    const Words odd = hn::And(hn::Shr(significand, cut), word(1));
    const Words sum = hn::Add(significand, hn::Add(odd, hn::Sub(half, word(1))));
    return hn::Add(base, hn::Shr(sum, cut));
  }
  const Words kept = hn::Add(base, hn::Shr(significand, hn::Min(shift, word(31))));
  if constexpr (kRounding == Rounding::stochastic) {
    // What is cut, in 2^-32 of the last place.
    const Words left = hn::Min(shift, word(32));
    const Words right = hn::Min(hn::Sub(shift, left), word(31));
    const Words rest = hn::Shr(hn::Shl(significand, hn::Sub(word(32), left)), right);
    const auto carries = hn::Lt(hn::Add(rest, random), rest);
    return hn::Add(kept, hn::IfThenElseZero(carries, word(1)));
  }
  return kept;
}

// A pattern without the pad bits of tf32, in the low bits of each lane.
template <Format kFormat, Rounding kRounding>
HWY_INLINE Words encode_lanes(Floats value, Words random, Words end) {
  constexpr int kWidth = info(kFormat).storage_bits - pad_bits(kFormat);
  const Words bits = hn::BitCast(kWords, value);
  const Words m = hn::And(bits, word(0x7FFFFFFF));
  Words result;
  if constexpr (has_fp32_exponent(kFormat)) {
    result = hn::Min(round_fraction<kFormat, kRounding>(m, random), end);
  } else {
    result = round_to_narrow<kFormat, kRounding>(m, random);
    if constexpr (kRounding == Rounding::toward_zero) {
      const auto finite = hn::Lt(m, word(kFloatInfinity));
      result = hn::IfThenElse(finite, hn::Min(result, word(max_magnitude(kFormat))), end);
    } else {
      result = hn::Min(result, end);
    }
  }
  const Words sign = hn::AndNot(word(0x7FFFFFFF), bits);
  result = hn::Or(result, hn::ShiftRight<32 - kWidth>(sign));
  const auto is_nan = hn::Gt(m, word(kFloatInfinity));
  return hn::IfThenElse(is_nan, word(nan_pattern(kFormat) >> pad_bits(kFormat)), result);
}

// encode_lanes of bf16 to nearest even with overflow to infinity, in half the instructions: a carry
// out of the fraction is the next exponent, that of infinity too.
HWY_INLINE Words encode_bf16(Floats value) {
  const Words bits = hn::BitCast(kWords, value);
  const Words odd = hn::And(hn::ShiftRight<16>(bits), word(1));
  const Words rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, word(0x7FFF))));
  const auto is_nan = hn::RebindMask(kWords, hn::IsNaN(value));
  return hn::IfThenElse(is_nan, word(nan_pattern(Format::bf16)), rounded);
}

// The inverse of encode_lanes.
template <Format kFormat>
HWY_INLINE Floats decode_lanes(Words pattern) {
  constexpr FormatInfo kInfo = info(kFormat);
  constexpr int kWidth = kInfo.storage_bits - pad_bits(kFormat);
  if constexpr (has_fp32_exponent(kFormat)) {
    return hn::BitCast(kFloats, hn::ShiftLeft<32 - kWidth>(pattern));
  } else {
    constexpr uint32_t kSign = sign_mask(kFormat);
    constexpr uint32_t kRebias = static_cast<uint32_t>(127 - kInfo.bias) << 23;
    const Words m = hn::And(pattern, word(kSign - 1));
    const Words sign = hn::ShiftLeft<32 - kWidth>(hn::And(pattern, word(kSign)));
    const Words normal = hn::Add(hn::ShiftLeft<23 - kInfo.fraction_bits>(m), word(kRebias));
    // By way of integers: the product of a subnormal float would be zero in denormals-are-zero
    // mode.
    const Floats small = hn::Mul(hn::ConvertTo(kFloats, hn::BitCast(kInts, m)),
                                 hn::Set(kFloats, static_cast<float>(kInfo.smallest_subnormal)));
    Words result = hn::IfThenElse(hn::Lt(m, word(1U << kInfo.fraction_bits)),
                                  hn::BitCast(kWords, small), normal);
    const auto special = hn::Gt(m, word(max_magnitude(kFormat)));
    const auto is_nan = hn::Gt(m, word(min_nan_magnitude(kFormat) - 1));
    result = hn::Or(result, hn::IfThenElseZero(special, word(kFloatInfinity)));
    result = hn::Or(result, hn::IfThenElseZero(is_nan, word(0x400000)));
    return hn::BitCast(kFloats, hn::Or(result, sign));
  }
}

// Rounded to nearest even, overflow to infinity; the numbers stay fp32.
template <Format kFormat>
HWY_INLINE Floats round_lanes(Floats value) {
  return decode_lanes<kFormat>(encode_lanes<kFormat, Rounding::nearest_even>(
      value, hn::Zero(kWords), word(max_magnitude(kFormat) + 1)));
}

template <Format kFormat>
using Stored = std::conditional_t<info(kFormat).storage_bits == 16, uint16_t, uint8_t>;

// Elements as wide as `Stored`, as many as there are floats in a vector.
template <Format kFormat>
using StoredTag = hn::Rebind<Stored<kFormat>, decltype(kFloats)>;

template <Format kFormat>
HWY_INLINE Floats decode_stored(hn::Vec<StoredTag<kFormat>> pattern) {
  if constexpr (kHasF16c && kFormat == Format::fp16) {
    const hn::Rebind<hwy::float16_t, decltype(kFloats)> halves;
    return hn::PromoteTo(kFloats, hn::BitCast(halves, pattern));
  } else {
    return decode_lanes<kFormat>(hn::PromoteTo(kWords, pattern));
  }
}

// The patterns of fp16 numbers, as halves.
HWY_INLINE auto encode_f16c(Floats value) {
  const hn::Rebind<hwy::float16_t, decltype(kFloats)> halves;
  const Floats quiet = hn::BitCast(kFloats, word(nan_pattern(Format::fp32)));
  return hn::DemoteTo(halves, hn::IfThenElse(hn::IsNaN(value), quiet, value));
}

// Rounded to nearest even, overflow to infinity; a format of fewer than 32 bits.
template <Format kFormat>
HWY_INLINE hn::Vec<StoredTag<kFormat>> encode_stored(Floats value) {
  const StoredTag<kFormat> stored;
  if constexpr (kHasF16c && kFormat == Format::fp16) {
    return hn::BitCast(stored, encode_f16c(value));
  } else if constexpr (kFormat == Format::bf16) {
    return hn::DemoteTo(stored, hn::BitCast(kInts, encode_bf16(value)));
  } else {
    const Words pattern = encode_lanes<kFormat, Rounding::nearest_even>(
        value, hn::Zero(kWords), word(max_magnitude(kFormat) + 1));
    return hn::DemoteTo(stored, hn::BitCast(kInts, pattern));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::numerics::kernels
HWY_AFTER_NAMESPACE();

#endif
