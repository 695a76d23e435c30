#include "mantissa/ops/cpu/moments.h"

#include <span>

#include "mantissa/numerics/convert.h"
#include "mantissa/ops/cpu/blocks.h"

namespace mantissa::ops::cpu {
namespace {

static_assert(kBlockElements % kQuantizationBlock == 0);

std::span<uint8_t> codes_of(const MomentView& moment, int64_t begin, int64_t count) {
  return {static_cast<uint8_t*>(moment.values) + begin, static_cast<size_t>(count)};
}

std::span<float> scales_of(const MomentView& moment, int64_t begin, int64_t count) {
  return {moment.scales + (begin / kQuantizationBlock),
          static_cast<size_t>((count + kQuantizationBlock - 1) / kQuantizationBlock)};
}

}  // namespace

float* load_moments(const MomentView& moment, int64_t begin, int64_t count, float* buffer) {
  if (moment.dtype == c10::ScalarType::Float) {
    return static_cast<float*>(moment.values) + begin;
  }
  if (moment.dtype == c10::ScalarType::BFloat16) {
    widen(moment.values, moment.dtype, begin, count, buffer);
  } else {
    dequantize(moment.map, codes_of(moment, begin, count), scales_of(moment, begin, count),
               std::span(buffer, static_cast<size_t>(count)));
  }
  return buffer;
}

void store_moments(const MomentView& moment, int64_t begin, int64_t count, const float* values) {
  const auto size = static_cast<size_t>(count);
  if (moment.dtype == c10::ScalarType::BFloat16) {
    numerics::encode(numerics::Format::bf16, std::span(values, size),
                     std::span(static_cast<uint16_t*>(moment.values) + begin, size),
                     {.rounding = numerics::Rounding::stochastic,
                      .seed = moment.seed,
                      .stream = moment.stream,
                      .offset = static_cast<uint64_t>(begin)});
  } else if (moment.dtype == c10::ScalarType::Byte) {
    quantize(moment.map, std::span(values, size), codes_of(moment, begin, count),
             scales_of(moment, begin, count));
  }
}

}  // namespace mantissa::ops::cpu
