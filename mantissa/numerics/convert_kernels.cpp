#include "mantissa/numerics/convert_kernels.h"

#include <algorithm>

// Highway compiles this file once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/numerics/convert_kernels.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "mantissa/numerics/convert_lanes-inl.h"

// Reads 4 bytes and writes 1 to 4 an element, so memory bounds all but stochastic rounding.
// AVX512_BF16 is not used: its conversion reads subnormals as zero.
HWY_BEFORE_NAMESPACE();
namespace mantissa::numerics::kernels {
namespace HWY_NAMESPACE {

HWY_INLINE auto encode_f16c(Floats value, Overflow overflow) {
  if (overflow == Overflow::saturate) {
    // The limits of a NaN may be a number.
    const Floats largest = hn::Set(kFloats, static_cast<float>(info(Format::fp16).max));
    const Floats limited = hn::Max(hn::Min(value, largest), hn::Neg(largest));
    value = hn::IfThenElse(hn::IsNaN(value), value, limited);
  }
  return encode_f16c(value);
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
  if constexpr (kFormat == Format::bf16 && kRounding == Rounding::nearest_even) {
    if (job.overflow != Overflow::saturate) {
      for_vectors<kRandom>(job, stored, out, [&](Floats value, Words) HWY_ATTR {
        return hn::DemoteTo(stored, hn::BitCast(kInts, encode_bf16(value)));
      });
      return;
    }
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
  size_t i = 0;
  for (; i + lanes <= size; i += lanes) {
    hn::StoreU(decode_stored<kFormat>(hn::LoadU(stored, in + i)), kFloats, values + i);
  }
  if (i < size) {
    HWY_ALIGN Stored<kFormat> rest[hn::MaxLanes(kFloats)] = {};
    HWY_ALIGN float results[hn::MaxLanes(kFloats)];
    std::copy(in + i, in + size, rest);
    hn::Store(decode_stored<kFormat>(hn::Load(stored, rest)), kFloats, results);
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
