#include "mantissa/ops/block_quantization.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "mantissa/base/error.h"

namespace mantissa::ops {
namespace {

constexpr int kDecades = 7;

std::array<float, 256> make_numbers(CodeMap map) {
  std::array<float, 256> numbers{};
  size_t count = 0;
  numbers[count++] = 0;
  numbers[count++] = 1;
  double power = 1;
  for (int decade = 0; decade < kDecades; ++decade) {
    const int parts = 1 << (kDecades - decade - (map == CodeMap::with_sign ? 1 : 0));
    for (int i = 0; i < parts; ++i) {
      // The middle of part i of [0.1, 1]; exact up to the division.
      const double number = (1 + (9 * (i + 0.5) / parts)) / (10 * power);
      numbers[count++] = static_cast<float>(number);
      if (map == CodeMap::with_sign) {
        numbers[count++] = static_cast<float>(-number);
      }
    }
    power *= 10;
  }
  MANTISSA_ASSERT(count == numbers.size());
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

// The largest magnitude; NaN when a number is not finite.
float scale_of(std::span<const float> block) {
  float largest = 0;
  for (const float value : block) {
    if (!std::isfinite(value)) {
      return std::numeric_limits<float>::quiet_NaN();
    }
    largest = std::max(largest, std::fabs(value));
  }
  return largest;
}

uint8_t nearest_code(CodeMap map, float value, float scale) {
  const std::array<float, 256>& numbers = numbers_of(map);
  const double ratio = scale == 0 ? 0.0 : static_cast<double>(value / scale);
  if (std::isnan(ratio)) {
    return 255;
  }
  size_t best = 0;
  for (size_t code = 1; code < numbers.size(); ++code) {
    const double distance = std::fabs(ratio - numbers[code]);
    const double shortest = std::fabs(ratio - numbers[best]);
    if (distance < shortest ||
        (distance == shortest && std::fabs(numbers[code]) > std::fabs(numbers[best]))) {
      best = code;
    }
  }
  const bool vanishes = map == CodeMap::nonnegative && best == zero_code(map) && value > 0;
  return static_cast<uint8_t>(vanishes ? best + 1 : best);
}

}  // namespace

const std::array<float, 256>& numbers_of(CodeMap map) {
  static const std::array<float, 256> with_sign = make_numbers(CodeMap::with_sign);
  static const std::array<float, 256> without_sign = make_numbers(CodeMap::nonnegative);
  return map == CodeMap::with_sign ? with_sign : without_sign;
}

uint8_t zero_code(CodeMap map) { return map == CodeMap::with_sign ? 127 : 0; }

void quantize_reference(CodeMap map, std::span<const float> values, std::span<uint8_t> codes,
                        std::span<float> scales) {
  for (size_t begin = 0; begin < values.size(); begin += kQuantizationBlock) {
    const size_t count = std::min<size_t>(kQuantizationBlock, values.size() - begin);
    const float scale = scale_of(values.subspan(begin, count));
    scales[begin / kQuantizationBlock] = scale;
    for (size_t i = begin; i < begin + count; ++i) {
      codes[i] = nearest_code(map, values[i], scale);
    }
  }
}

void dequantize(CodeMap map, std::span<const uint8_t> codes, std::span<const float> scales,
                std::span<float> values) {
  const std::array<float, 256>& numbers = numbers_of(map);
  for (size_t begin = 0; begin < codes.size(); begin += kQuantizationBlock) {
    const size_t end = std::min<size_t>(begin + kQuantizationBlock, codes.size());
    const float scale = scales[begin / kQuantizationBlock];
    for (size_t i = begin; i < end; ++i) {
      values[i] = numbers[codes[i]] * scale;
    }
  }
}

}  // namespace mantissa::ops
