#include "mantissa/ops/cpu/weights.h"

#include <array>
#include <span>

#include "mantissa/numerics/convert.h"
#include "mantissa/ops/cpu/blocks.h"
#include "mantissa/ops/split_weight.h"

namespace mantissa::ops::cpu {
namespace {

using numerics::Rounding;

void store_compensated(const WeightView& weight, int64_t begin, int64_t count,
                       const float* weights) {
  narrow(weights, weight.model, weight.model_dtype, begin, count);
  std::array<float, kBlockElements> rest;
  const float* model = widen(weight.model, weight.model_dtype, begin, count, rest.data());
  for (int64_t i = 0; i < count; ++i) {
    rest[i] = weights[i] - model[i];
  }
  narrow(rest.data(), weight.rest, weight.model_dtype, begin, count);
}

int64_t count_lost(const float* before, const float* after, const float* rounded, int64_t count) {
  int64_t lost = 0;
  for (int64_t i = 0; i < count; ++i) {
    lost += static_cast<int64_t>(before[i] != after[i] && before[i] == rounded[i]);
  }
  return lost;
}

void store_alone(const WeightView& weight, int64_t begin, int64_t count, const float* weights) {
  const bool counts = weight.lost != nullptr && weight.rounding == Rounding::nearest_even;
  std::array<float, kBlockElements> before;
  if (counts) {
    widen(weight.model, weight.model_dtype, begin, count, before.data());
  }
  const auto size = static_cast<size_t>(count);
  numerics::encode(format_of(weight.model_dtype), std::span(weights, size),
                   std::span(static_cast<uint16_t*>(weight.model) + begin, size),
                   {.rounding = weight.rounding,
                    .seed = weight.seed,
                    .stream = weight.stream,
                    .offset = static_cast<uint64_t>(begin)});
  if (counts) {
    std::array<float, kBlockElements> rounded;
    widen(weight.model, weight.model_dtype, begin, count, rounded.data());
    weight.lost->fetch_add(count_lost(before.data(), weights, rounded.data(), count),
                           std::memory_order_relaxed);
  }
}

}  // namespace

float* load_weights(const WeightView& weight, int64_t begin, int64_t count, float* buffer) {
  if (weight.master != nullptr) {
    return weight.master + begin;
  }
  if (weight.rest != nullptr && weight.rest_is_bits) {
    const auto* model = static_cast<const uint16_t*>(weight.model) + begin;
    const auto* rest = static_cast<const int16_t*>(weight.rest) + begin;
    for (int64_t i = 0; i < count; ++i) {
      buffer[i] = join_weight({model[i], rest[i]});
    }
    return buffer;
  }
  widen(weight.model, weight.model_dtype, begin, count, buffer);
  if (weight.rest != nullptr) {
    std::array<float, kBlockElements> rest;
    widen(weight.rest, weight.model_dtype, begin, count, rest.data());
    for (int64_t i = 0; i < count; ++i) {
      buffer[i] += rest[i];
    }
  }
  return buffer;
}

void store_weights(const WeightView& weight, int64_t begin, int64_t count, const float* weights) {
  if (weight.master != nullptr) {
    return;
  }
  if (weight.rest == nullptr) {
    store_alone(weight, begin, count, weights);
  } else if (!weight.rest_is_bits) {
    store_compensated(weight, begin, count, weights);
  } else {
    auto* model = static_cast<uint16_t*>(weight.model) + begin;
    auto* rest = static_cast<int16_t*>(weight.rest) + begin;
    for (int64_t i = 0; i < count; ++i) {
      const SplitWeight split = split_weight(weights[i]);
      model[i] = split.model;
      rest[i] = split.rest;
    }
  }
}

}  // namespace mantissa::ops::cpu
