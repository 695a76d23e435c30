#include "mantissa/ops/block_quantization.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "mantissa/base/random.h"

namespace mantissa::ops {
namespace {

constexpr std::array kMaps = {CodeMap::with_sign, CodeMap::nonnegative};

struct Quantized {
  std::vector<uint8_t> codes;
  std::vector<float> scales;

  bool operator==(const Quantized& other) const {
    const auto same_bits = [](float a, float b) {
      return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
    };
    return codes == other.codes && std::equal(scales.begin(), scales.end(), other.scales.begin(),
                                              other.scales.end(), same_bits);
  }
};

template <typename Function>
Quantized quantized(Function function, CodeMap map, const std::vector<float>& values) {
  Quantized result;
  result.codes.resize(values.size());
  result.scales.resize((values.size() + kQuantizationBlock - 1) / kQuantizationBlock);
  function(map, values, result.codes, result.scales);
  return result;
}

std::vector<float> through(CodeMap map, const std::vector<float>& values) {
  const Quantized stored = quantized(quantize, map, values);
  std::vector<float> result(values.size());
  dequantize(map, stored.codes, stored.scales, result);
  return result;
}

// What `value` becomes beside an element of magnitude 1.
float beside_one(CodeMap map, float value) { return through(map, {1, value})[1]; }

TEST(CodeMap, HasTheNumbersOfThePaper) {
  for (const CodeMap map : kMaps) {
    const std::array<float, 256>& numbers = numbers_of(map);
    EXPECT_TRUE(std::is_sorted(numbers.begin(), numbers.end()));
    EXPECT_EQ(std::adjacent_find(numbers.begin(), numbers.end()), numbers.end());
    EXPECT_EQ(numbers[zero_code(map)], 0);
    EXPECT_EQ(numbers[255], 1);
    // Each decade has half of the numbers of the one above.
    int64_t parts = map == CodeMap::with_sign ? 64 : 128;
    for (double high = 1; high > 2e-7; high /= 10, parts /= 2) {
      const auto in_decade = [&](float number) {
        return number > 0.1 * high && number < high * (1 - 1e-6);
      };
      EXPECT_EQ(std::count_if(numbers.begin(), numbers.end(), in_decade), parts) << high;
    }
  }
  EXPECT_FLOAT_EQ(numbers_of(CodeMap::with_sign)[128], 0.55e-6);
  EXPECT_FLOAT_EQ(numbers_of(CodeMap::with_sign)[0], -(1 - 0.45 / 64));
  EXPECT_FLOAT_EQ(numbers_of(CodeMap::nonnegative)[1], 0.325e-6);
  EXPECT_FLOAT_EQ(numbers_of(CodeMap::nonnegative)[254], 1 - 0.45 / 128);
}

// Next to every number of a map and every middle between two, over eight decades, and values that
// are no ordinary numbers.
TEST(BlockQuantization, IsBitForBitTheReference) {
  for (const CodeMap map : kMaps) {
    const std::array<float, 256>& numbers = numbers_of(map);
    std::vector<float> values;
    for (size_t i = 0; i < numbers.size(); ++i) {
      const float middle = i + 1 < numbers.size() ? (numbers[i] + numbers[i + 1]) / 2 : 0.5F;
      for (const float center : {numbers[i], middle}) {
        values.push_back(std::nextafter(center, -2.0F));
        values.push_back(center);
        values.push_back(std::nextafter(center, 2.0F));
      }
    }
    Random random(51, 0);
    for (int i = 0; i < 20000; ++i) {
      const auto magnitude = static_cast<float>(std::exp2(-28 * random.uniform()));
      values.push_back(map == CodeMap::with_sign && random.below(2) == 1 ? -magnitude : magnitude);
    }
    for (const float each : {0.0F, -0.0F, 0x1p-149F, 0x1p-126F, 1e-30F}) {
      values.push_back(each);
    }
    // Every block holds a 1, so that ratios are the values; then blocks of other scales.
    std::vector<float> blocks;
    for (size_t i = 0; i < values.size(); ++i) {
      if (i % (kQuantizationBlock - 1) == 0) {
        blocks.push_back(1);
      }
      blocks.push_back(values[i]);
    }
    for (const float scale : {1.0F, 3e-5F, 0x1.fp127F, 0x1p-130F}) {
      std::vector<float> scaled = blocks;
      for (float& value : scaled) {
        value *= scale;
      }
      EXPECT_EQ(quantized(quantize, map, scaled), quantized(quantize_reference, map, scaled))
          << "seed 51, scale " << scale;
    }
  }
}

TEST(BlockQuantization, EveryLengthIsCutIntoBlocksOfItsOwnScale) {
  Random random(52, 0);
  for (const size_t length : {0, 1, 255, 256, 257, 511, 513}) {
    std::vector<float> values(length);
    for (size_t i = 0; i < length; ++i) {
      const size_t block = i / 256;
      values[i] = static_cast<float>(static_cast<double>(block + 1) * random.normal());
    }
    const Quantized stored = quantized(quantize, CodeMap::with_sign, values);
    EXPECT_EQ(stored, quantized(quantize_reference, CodeMap::with_sign, values)) << length;
    for (size_t block = 0; block < stored.scales.size(); ++block) {
      float largest = 0;
      for (size_t i = 256 * block; i < std::min(length, 256 * (block + 1)); ++i) {
        largest = std::max(largest, std::fabs(values[i]));
      }
      EXPECT_EQ(stored.scales[block], largest) << length;
    }
  }
}

TEST(BlockQuantization, IsWithinTheErrorOfTheTable) {
  // One rounding of the division and one of the product.
  constexpr double kRounding = 1 + 0x1p-22;
  for (const CodeMap map : kMaps) {
    double parts = map == CodeMap::with_sign ? 64 : 128;
    for (double high = 1; high > 2e-6; high /= 10, parts /= 2) {
      const double bound = std::max(4.5 / (parts + 9), 2.7 / (parts + 1.8)) * kRounding;
      double largest = 0;
      for (double x = high / 10; x < high; x *= 1.0001) {
        const auto value = static_cast<float>(x);
        largest = std::max<double>(largest, std::fabs(beside_one(map, value) - value) / value);
      }
      EXPECT_LE(largest, bound) << high;
      EXPECT_GE(largest, 0.98 * bound) << "the bound is of this map, at " << high;
    }
    const double smallest = map == CodeMap::with_sign ? 0.45e-6 : 0.325e-6;
    for (double x = 1e-6; x > 1e-12; x *= 0.999) {
      const auto value = static_cast<float>(x);
      EXPECT_LE(std::fabs(beside_one(map, value) - value), smallest * kRounding) << x;
    }
  }
  EXPECT_FLOAT_EQ(through(CodeMap::with_sign, {-2, 1})[0], -2 * (1 - 0.45 / 64));
}

TEST(BlockQuantization, WhatIsStoredIsStoredAgainAsItIs) {
  for (const CodeMap map : kMaps) {
    std::vector<float> values(numbers_of(map).begin(), numbers_of(map).end());
    for (float& value : values) {
      value *= 0.375F;
    }
    EXPECT_EQ(through(map, values), values);
  }
}

TEST(BlockQuantization, ZeroStaysZeroAndOnlyZeroBecomesZeroWithoutSign) {
  EXPECT_EQ(through(CodeMap::with_sign, {0, -0.0F, 0}), (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(through(CodeMap::nonnegative, {0, 5, 0}), (std::vector<float>{0, 5, 0}));
  for (const float tiny : {1e-7F, 1e-20F, 0x1p-149F}) {
    EXPECT_FLOAT_EQ(through(CodeMap::nonnegative, {tiny, 1e5F})[0], 0.325e-6F * 1e5F) << tiny;
  }
  EXPECT_EQ(through(CodeMap::with_sign, {1e-7F, 1})[0], 0);
}

TEST(BlockQuantization, ANumberThatIsNotFiniteMakesItsBlockNan) {
  for (const CodeMap map : kMaps) {
    for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
      std::vector<float> values(512, 1.0F);
      values[3] = bad;
      EXPECT_EQ(quantized(quantize, map, values), quantized(quantize_reference, map, values));
      const std::vector<float> result = through(map, values);
      EXPECT_TRUE(std::all_of(result.begin(), result.begin() + 256,
                              [](float value) { return std::isnan(value); }));
      EXPECT_EQ(result[256], 1);
    }
  }
}

}  // namespace
}  // namespace mantissa::ops
