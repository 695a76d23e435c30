#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/ops/block_quantization.h"

namespace mantissa::ops {
namespace {

constexpr uint32_t kMagnitude = 0x7fffffff;
constexpr uint32_t kInfinity = 0x7f800000;
// Patterns of FP32 without the low 16 bits: buckets of 2^-7 relative width, from 2^-23 to 1. Below
// all numbers are nearest to 0.
constexpr int kBucketShift = 16;
constexpr uint32_t kFirstBucket = std::bit_cast<uint32_t>(0x1p-23F) >> kBucketShift;
constexpr uint32_t kOne = std::bit_cast<uint32_t>(1.0F);
constexpr size_t kBuckets = (kOne >> kBucketShift) - kFirstBucket + 1;

/// Positions among the magnitudes of a map: number p of them is nearest from thresholds[p] on. In a
/// bucket lies at most one threshold, so one table access and one comparison find the position.
struct Positions {
  std::array<float, 258> thresholds{};  // [0] is not read; after the last one 2
  std::array<uint8_t, kBuckets> first{};
};

std::vector<float> magnitudes_of(CodeMap map) {
  const std::array<float, 256>& numbers = numbers_of(map);
  return {numbers.begin() + zero_code(map), numbers.end()};
}

Positions make_positions(CodeMap map) {
  const std::vector<float> magnitudes = magnitudes_of(map);
  Positions positions;
  positions.thresholds.fill(2);
  for (size_t p = 1; p < magnitudes.size(); ++p) {
    // Exact, and then the first FP32 number that is not below.
    const double middle = (static_cast<double>(magnitudes[p - 1]) + magnitudes[p]) / 2;
    auto threshold = static_cast<float>(middle);
    if (threshold < middle) {
      threshold = std::nextafter(threshold, 2.0F);
    }
    positions.thresholds[p] = threshold;
  }
  for (size_t bucket = 0; bucket < kBuckets; ++bucket) {
    const auto begin = static_cast<uint32_t>(kFirstBucket + bucket) << kBucketShift;
    const auto begin_value = std::bit_cast<float>(bucket == 0 ? 0 : begin);
    const auto last_value = std::bit_cast<float>(begin + (1U << kBucketShift) - 1);
    size_t position = 0;
    while (positions.thresholds[position + 1] <= begin_value) {
      ++position;
    }
    MANTISSA_ASSERT(position + 1 >= magnitudes.size() ||
                    positions.thresholds[position + 2] > last_value);
    positions.first[bucket] = static_cast<uint8_t>(position);
  }
  return positions;
}

const Positions& positions_of(CodeMap map) {
  static const Positions with_sign = make_positions(CodeMap::with_sign);
  static const Positions without_sign = make_positions(CodeMap::nonnegative);
  return map == CodeMap::with_sign ? with_sign : without_sign;
}

// Of magnitudes up to 1; anything else, NaN too, counts as 1.
uint32_t position_of(const Positions& positions, uint32_t magnitude) {
  const uint32_t bits = std::min(magnitude, kOne);
  const uint32_t bucket = std::max(bits >> kBucketShift, kFirstBucket) - kFirstBucket;
  const uint32_t first = positions.first[bucket];
  return first +
         static_cast<uint32_t>(std::bit_cast<float>(bits) >= positions.thresholds[first + 1]);
}

// As integers, magnitudes have the order of the numbers, infinity and NaN above all.
float scale_of(const float* values, size_t count) {
  uint32_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(values[i]) & kMagnitude);
  }
  return largest >= kInfinity ? std::numeric_limits<float>::quiet_NaN()
                              : std::bit_cast<float>(largest);
}

void quantize_signed(const Positions& positions, const float* values, size_t count, float divisor,
                     uint8_t* codes) {
  constexpr uint32_t kZero = 127;
  for (size_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<uint32_t>(values[i] / divisor);
    const uint32_t position = position_of(positions, bits & kMagnitude);
    const bool is_negative = bits > kMagnitude && (bits & kMagnitude) <= kInfinity;
    // There is no -1.
    const uint32_t code = is_negative ? kZero - std::min(position, kZero) : kZero + position;
    codes[i] = static_cast<uint8_t>(code);
  }
}

void quantize_nonnegative(const Positions& positions, const float* values, size_t count,
                          float divisor, uint8_t* codes) {
  for (size_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<uint32_t>(values[i] / divisor);
    const uint32_t magnitude = bits <= kMagnitude || (bits & kMagnitude) > kInfinity
                                   ? bits & kMagnitude
                                   : 0;  // a negative number is nearest to 0
    const uint32_t position = position_of(positions, magnitude);
    codes[i] = static_cast<uint8_t>(std::max(position, static_cast<uint32_t>(values[i] > 0)));
  }
}

}  // namespace

// 5 bytes an element, read twice from the L1 cache: for the scale and for the codes.
void quantize(CodeMap map, std::span<const float> values, std::span<uint8_t> codes,
              std::span<float> scales) {
  const Positions& positions = positions_of(map);
  for (size_t begin = 0; begin < values.size(); begin += kQuantizationBlock) {
    const size_t count = std::min<size_t>(kQuantizationBlock, values.size() - begin);
    const float* block = values.data() + begin;
    const float scale = scale_of(block, count);
    scales[begin / kQuantizationBlock] = scale;
    const float divisor = scale == 0 ? 1 : scale;
    if (map == CodeMap::with_sign) {
      quantize_signed(positions, block, count, divisor, codes.data() + begin);
    } else {
      quantize_nonnegative(positions, block, count, divisor, codes.data() + begin);
    }
  }
}

}  // namespace mantissa::ops
