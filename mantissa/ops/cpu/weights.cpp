#include "mantissa/ops/cpu/weights.h"

#include <span>

#include "mantissa/numerics/convert.h"
#include "mantissa/ops/cpu/blocks.h"

// Vectors of a size that is known when this is compiled.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
// Highway compiles this file once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/ops/cpu/weights.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "mantissa/ops/cpu/element_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::ops::cpu {
namespace HWY_NAMESPACE {

using lanes::Ints;
using lanes::kInts;
using lanes::kWords;
using lanes::Words;

constexpr hn::Rebind<uint16_t, decltype(kFloats)> kPatterns;
constexpr hn::Rebind<int16_t, decltype(kFloats)> kDifferences;

// As join_weight().
void join(const uint16_t* models, const int16_t* rests, int64_t count, float* weights) {
  for_vectors(
      count,
      [&](const uint16_t* model, const int16_t* rest, float* weight) HWY_ATTR {
        const Words high = hn::ShiftLeft<16>(hn::PromoteTo(kWords, hn::LoadU(kPatterns, model)));
        const Ints difference = hn::PromoteTo(kInts, hn::LoadU(kDifferences, rest));
        const Words bits = hn::Add(high, hn::BitCast(kWords, difference));
        hn::StoreU(hn::BitCast(kFloats, bits), kFloats, weight);
      },
      models, rests, weights);
}

// As split_weight().
void split(const float* weights, int64_t count, uint16_t* models, int16_t* rests) {
  for_vectors(
      count,
      [&](const float* weight, uint16_t* model, int16_t* rest) HWY_ATTR {
        const Floats value = hn::LoadU(kFloats, weight);
        const auto is_nan = hn::IsNaN(value);
        const Words bits = hn::BitCast(
            kWords, hn::IfThenElse(is_nan, hn::BitCast(kFloats, lanes::word(0x7FC00000)), value));
        const Words rounded = hn::ShiftRight<16>(hn::Add(bits, lanes::word(0x8000)));
        const Words difference = hn::Sub(bits, hn::ShiftLeft<16>(rounded));
        hn::StoreU(hn::DemoteTo(kPatterns, hn::BitCast(kInts, rounded)), kPatterns, model);
        hn::StoreU(hn::DemoteTo(kDifferences, hn::BitCast(kInts, difference)), kDifferences, rest);
      },
      weights, models, rests);
}

template <Format kFormat>
void add_rest_as(const uint16_t* models, const uint16_t* rests, int64_t count, float* weights) {
  using Sixteen = Elements<kFormat>;
  for_vectors(
      count,
      [&](const uint16_t* model, const uint16_t* rest, float* weight) HWY_ATTR {
        hn::StoreU(hn::Add(Sixteen::read(model), Sixteen::read(rest)), kFloats, weight);
      },
      models, rests, weights);
}

template <Format kFormat>
void compensate_as(const float* weights, int64_t count, uint16_t* models, uint16_t* rests) {
  using Sixteen = Elements<kFormat>;
  for_vectors(
      count,
      [&](const float* weight, uint16_t* model, uint16_t* rest) HWY_ATTR {
        const Floats value = hn::LoadU(kFloats, weight);
        const auto pattern = lanes::encode_stored<kFormat>(value);
        hn::StoreU(pattern, kPatterns, model);
        Sixteen::write(hn::Sub(value, lanes::decode_stored<kFormat>(pattern)), rest);
      },
      weights, models, rests);
}

template <Format kFormat>
int64_t round_as(const float* weights, int64_t count, uint16_t* models) {
  Ints lost = hn::Zero(kInts);
  for_vectors(
      count,
      [&](const float* weight, uint16_t* model) HWY_ATTR {
        const Floats value = hn::LoadU(kFloats, weight);
        const Floats before = lanes::decode_stored<kFormat>(hn::LoadU(kPatterns, model));
        const auto pattern = lanes::encode_stored<kFormat>(value);
        hn::StoreU(pattern, kPatterns, model);
        const auto stays = hn::Eq(before, lanes::decode_stored<kFormat>(pattern));
        const auto is_lost = hn::And(stays, hn::Ne(before, value));
        lost = hn::Sub(lost, hn::BitCast(kInts, hn::VecFromMask(kFloats, is_lost)));
      },
      weights, models);
  HWY_ALIGN int32_t counts[kLanes];
  hn::Store(lost, kInts, counts);
  int64_t total = 0;
  for (const int32_t each : counts) {
    total += each;
  }
  return total;
}

void add_rest(Format format, const uint16_t* models, const uint16_t* rests, int64_t count,
              float* weights) {
  return format == Format::bf16 ? add_rest_as<Format::bf16>(models, rests, count, weights)
                                : add_rest_as<Format::fp16>(models, rests, count, weights);
}

void compensate(Format format, const float* weights, int64_t count, uint16_t* models,
                uint16_t* rests) {
  return format == Format::bf16 ? compensate_as<Format::bf16>(weights, count, models, rests)
                                : compensate_as<Format::fp16>(weights, count, models, rests);
}

int64_t round_counting_lost(Format format, const float* weights, int64_t count, uint16_t* models) {
  return format == Format::bf16 ? round_as<Format::bf16>(weights, count, models)
                                : round_as<Format::fp16>(weights, count, models);
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::ops::cpu {

HWY_EXPORT(join);
HWY_EXPORT(split);
HWY_EXPORT(add_rest);
HWY_EXPORT(compensate);
HWY_EXPORT(round_counting_lost);

float* load_weights(const WeightView& weight, int64_t begin, int64_t count, float* buffer) {
  if (weight.master != nullptr) {
    return weight.master + begin;
  }
  const auto* model = static_cast<const uint16_t*>(weight.model) + begin;
  if (weight.rest == nullptr) {
    widen(weight.model, weight.model_dtype, begin, count, buffer);
  } else if (weight.rest_is_bits) {
    const auto* rest = static_cast<const int16_t*>(weight.rest) + begin;
    HWY_DYNAMIC_DISPATCH(join)(model, rest, count, buffer);
  } else {
    const auto* rest = static_cast<const uint16_t*>(weight.rest) + begin;
    HWY_DYNAMIC_DISPATCH(add_rest)(format_of(weight.model_dtype), model, rest, count, buffer);
  }
  return buffer;
}

void store_weights(const WeightView& weight, int64_t begin, int64_t count, const float* weights) {
  if (weight.master != nullptr) {
    return;
  }
  const numerics::Format format = format_of(weight.model_dtype);
  auto* model = static_cast<uint16_t*>(weight.model) + begin;
  if (weight.rest != nullptr && weight.rest_is_bits) {
    auto* rest = static_cast<int16_t*>(weight.rest) + begin;
    HWY_DYNAMIC_DISPATCH(split)(weights, count, model, rest);
  } else if (weight.rest != nullptr) {
    auto* rest = static_cast<uint16_t*>(weight.rest) + begin;
    HWY_DYNAMIC_DISPATCH(compensate)(format, weights, count, model, rest);
  } else if (weight.lost != nullptr && weight.rounding == numerics::Rounding::nearest_even) {
    *weight.lost += HWY_DYNAMIC_DISPATCH(round_counting_lost)(format, weights, count, model);
  } else {
    const auto size = static_cast<size_t>(count);
    numerics::encode(format, std::span(weights, size), std::span(model, size),
                     {.rounding = weight.rounding,
                      .seed = weight.seed,
                      .stream = weight.stream,
                      .offset = static_cast<uint64_t>(begin)});
  }
}

void set_arrays(const WeightView& weight, int64_t begin, int64_t count, float* buffer,
                UpdateArrays& arrays) {
  arrays.count = count;
  arrays.gradient = element(weight.gradient.data, weight.gradient.dtype, begin);
  arrays.weights = load_weights(weight, begin, count, buffer);
  if (weight.master != nullptr && weight.model != nullptr) {
    arrays.model = element(weight.model, weight.model_dtype, begin);
    arrays.model_format = format_of(weight.model_dtype);
  }
}

}  // namespace mantissa::ops::cpu
#endif
