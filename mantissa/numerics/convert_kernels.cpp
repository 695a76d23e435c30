#include "mantissa/numerics/convert_kernels.h"

#include <algorithm>
#include <type_traits>

#include "mantissa/numerics/bit_pattern.h"

// Highway compiles this file once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/numerics/convert_kernels.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

// Reads 4 bytes and writes 1 to 4 an element, so memory bounds all but stochastic rounding.
// AVX512_BF16 is not used: its conversion reads subnormals as zero.
HWY_BEFORE_NAMESPACE();
namespace mantissa::numerics::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr hn::ScalableTag<float> kFloats;
constexpr hn::ScalableTag<uint32_t> kWords;
constexpr hn::ScalableTag<int32_t> kInts;
using Floats = hn::Vec<decltype(kFloats)>;
using Words = hn::Vec<decltype(kWords)>;

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

template <Format kFormat>
using Stored = std::conditional_t<info(kFormat).storage_bits == 16, uint16_t, uint8_t>;

// Elements as wide as `Stored`, as many as there are floats in a vector.
template <Format kFormat>
using StoredTag = hn::Rebind<Stored<kFormat>, decltype(kFloats)>;

HWY_INLINE auto encode_f16c(Floats value, Overflow overflow) {
  const auto is_nan = hn::IsNaN(value);
  if (overflow == Overflow::saturate) {
    const Floats largest = hn::Set(kFloats, static_cast<float>(info(Format::fp16).max));
    value = hn::Max(hn::Min(value, largest), hn::Neg(largest));
  }
  const Floats quiet = hn::BitCast(kFloats, word(nan_pattern(Format::fp32)));
  const hn::Rebind<hwy::float16_t, decltype(kFloats)> halves;
  return hn::DemoteTo(halves, hn::IfThenElse(is_nan, quiet, value));
}

// Stores body(floats, random words) for whole vectors, and once more for a padded copy of the rest.
template <bool kRandom, typename OutTag, typename Body>
HWY_INLINE void for_vectors(const Job& job, OutTag out_tag, hn::TFromD<OutTag>* out,
                            const Body& body) {
  const size_t lanes = hn::Lanes(kFloats);
  size_t i = 0;
  for (; i + lanes <= job.size; i += lanes) {
    const Words random = kRandom ? hn::LoadU(kWords, job.random + i) : hn::Zero(kWords);
    hn::StoreU(body(hn::LoadU(kFloats, job.values + i), random), out_tag, out + i);
  }
  if (i < job.size) {
    HWY_ALIGN float values[hn::MaxLanes(kFloats)] = {};
    HWY_ALIGN uint32_t words[hn::MaxLanes(kWords)] = {};
    HWY_ALIGN hn::TFromD<OutTag> results[hn::MaxLanes(kFloats)];
    std::copy(job.values + i, job.values + job.size, values);
    if (kRandom) {
      std::copy(job.random + i, job.random + job.size, words);
    }
    hn::Store(body(hn::Load(kFloats, values), hn::Load(kWords, words)), out_tag, results);
    std::copy(results, results + (job.size - i), out + i);
  }
}

// The largest magnitude of a result other than NaN.
template <Format kFormat>
Words end_of(Overflow overflow) {
  return word(max_magnitude(kFormat) + (overflow == Overflow::saturate ? 0 : 1));
}

template <Format kFormat, Rounding kRounding>
void encode_as(const Job& job, void* patterns) {
  constexpr bool kRandom = kRounding == Rounding::stochastic;
  auto* out = static_cast<Stored<kFormat>*>(patterns);
  const StoredTag<kFormat> stored;
  if constexpr (kHasF16c && kFormat == Format::fp16 && kRounding == Rounding::nearest_even) {
    for_vectors<kRandom>(job, stored, out, [&](Floats value, Words) HWY_ATTR {
      return hn::BitCast(stored, encode_f16c(value, job.overflow));
    });
    return;
  }
  const Words end = end_of<kFormat>(job.overflow);
  for_vectors<kRandom>(job, stored, out, [&](Floats value, Words random) HWY_ATTR {
    const Words pattern = encode_lanes<kFormat, kRounding>(value, random, end);
    return hn::DemoteTo(stored, hn::BitCast(kInts, pattern));
  });
}

template <Format kFormat, Rounding kRounding>
void round_as(const Job& job, float* rounded) {
  constexpr bool kRandom = kRounding == Rounding::stochastic;
  if constexpr (kHasF16c && kFormat == Format::fp16 && kRounding == Rounding::nearest_even) {
    for_vectors<kRandom>(job, kFloats, rounded, [&](Floats value, Words) HWY_ATTR {
      return hn::PromoteTo(kFloats, encode_f16c(value, job.overflow));
    });
    return;
  }
  const Words end = end_of<kFormat>(job.overflow);
  for_vectors<kRandom>(job, kFloats, rounded, [&](Floats value, Words random) HWY_ATTR {
    return decode_lanes<kFormat>(encode_lanes<kFormat, kRounding>(value, random, end));
  });
}

template <Format kFormat>
void decode_as(const void* patterns, float* values, size_t size) {
  const auto* in = static_cast<const Stored<kFormat>*>(patterns);
  const StoredTag<kFormat> stored;
  const size_t lanes = hn::Lanes(kFloats);
  const auto convert = [](auto pattern) HWY_ATTR {
    if constexpr (kHasF16c && kFormat == Format::fp16) {
      const hn::Rebind<hwy::float16_t, decltype(kFloats)> halves;
      return hn::PromoteTo(kFloats, hn::BitCast(halves, pattern));
    } else {
      return decode_lanes<kFormat>(hn::PromoteTo(kWords, pattern));
    }
  };
  size_t i = 0;
  for (; i + lanes <= size; i += lanes) {
    hn::StoreU(convert(hn::LoadU(stored, in + i)), kFloats, values + i);
  }
  if (i < size) {
    HWY_ALIGN Stored<kFormat> rest[hn::MaxLanes(kFloats)] = {};
    HWY_ALIGN float results[hn::MaxLanes(kFloats)];
    std::copy(in + i, in + size, rest);
    hn::Store(convert(hn::Load(stored, rest)), kFloats, results);
    std::copy(results, results + (size - i), values + i);
  }
}

// Calls `function.template operator()<rounding>()` for the rounding of the job.
template <typename Function>
void with_rounding(Rounding rounding, const Function& function) {
  switch (rounding) {
    case Rounding::nearest_even:
      return function.template operator()<Rounding::nearest_even>();
    case Rounding::toward_zero:
      return function.template operator()<Rounding::toward_zero>();
    case Rounding::stochastic:
      return function.template operator()<Rounding::stochastic>();
  }
}

void encode(const Job& job, void* patterns) {
  with_rounding(job.rounding, [&]<Rounding kRounding>() {
    switch (job.format) {
      case Format::bf16:
        return encode_as<Format::bf16, kRounding>(job, patterns);
      case Format::fp16:
        return encode_as<Format::fp16, kRounding>(job, patterns);
      case Format::fp8_e4m3:
        return encode_as<Format::fp8_e4m3, kRounding>(job, patterns);
      case Format::fp8_e5m2:
        return encode_as<Format::fp8_e5m2, kRounding>(job, patterns);
      case Format::fp32:
      case Format::tf32:
        return;  // refused by the caller
    }
  });
}

void round_to(const Job& job, float* rounded) {
  with_rounding(job.rounding, [&]<Rounding kRounding>() {
    switch (job.format) {
      case Format::fp32:
        return round_as<Format::fp32, kRounding>(job, rounded);
      case Format::tf32:
        return round_as<Format::tf32, kRounding>(job, rounded);
      case Format::bf16:
        return round_as<Format::bf16, kRounding>(job, rounded);
      case Format::fp16:
        return round_as<Format::fp16, kRounding>(job, rounded);
      case Format::fp8_e4m3:
        return round_as<Format::fp8_e4m3, kRounding>(job, rounded);
      case Format::fp8_e5m2:
        return round_as<Format::fp8_e5m2, kRounding>(job, rounded);
    }
  });
}

void decode(Format format, const void* patterns, float* values, size_t size) {
  switch (format) {
    case Format::bf16:
      return decode_as<Format::bf16>(patterns, values, size);
    case Format::fp16:
      return decode_as<Format::fp16>(patterns, values, size);
    case Format::fp8_e4m3:
      return decode_as<Format::fp8_e4m3>(patterns, values, size);
    case Format::fp8_e5m2:
      return decode_as<Format::fp8_e5m2>(patterns, values, size);
    case Format::fp32:
    case Format::tf32:
      return;  // refused by the caller
  }
}

const char* target_name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::numerics::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::numerics::kernels {

HWY_EXPORT(encode);
HWY_EXPORT(round_to);
HWY_EXPORT(decode);
HWY_EXPORT(target_name);

void encode(const Job& job, void* patterns) { HWY_DYNAMIC_DISPATCH(encode)(job, patterns); }

void round_to(const Job& job, float* rounded) { HWY_DYNAMIC_DISPATCH(round_to)(job, rounded); }

void decode(Format format, const void* patterns, float* values, size_t size) {
  HWY_DYNAMIC_DISPATCH(decode)(format, patterns, values, size);
}

const char* target_name() { return HWY_DYNAMIC_DISPATCH(target_name)(); }

}  // namespace mantissa::numerics::kernels
#endif
