#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "mantissa/numerics/bit_pattern.h"
#include "mantissa/numerics/format.h"
#include "mantissa/numerics/rounding.h"

namespace mantissa::numerics {

/// FP32 values where a conversion to `format` may go wrong, for tests: every number of the format
/// and every middle between neighbours, the middle between the largest and what would follow it
/// included, each with the fp32 numbers next to it; every power of two; zeros, infinities, NaNs,
/// fp32 subnormals; all with both signs. fp32 itself has only the last kinds, and of tf32, whose
/// numbers are many and behave as those of bf16, every fifth is taken.
inline std::vector<float> boundary_values(Format format) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> values = {
      0.0F, kInfinity, std::numeric_limits<float>::max(), 0x1p-149F, 0x1.fffffcp-127F, 0.1F,
      3.0F, 1e9F};
  for (uint32_t nan : {0x7F800001U, 0x7FBFFFFFU, 0x7FC00000U, 0x7FC01234U, 0x7FFFFFFFU}) {
    values.push_back(std::bit_cast<float>(nan));
  }
  for (int exponent = -149; exponent <= 127; ++exponent) {
    const float power = std::ldexp(1.0F, exponent);
    values.insert(values.end(), {std::nextafter(power, 0.0F), power, 1.25F * power, 1.5F * power,
                                 std::nextafter(1.5F * power, kInfinity)});
  }
  const uint32_t end = format == Format::fp32 ? 0 : max_magnitude(format) + 1;
  const uint32_t step = format == Format::tf32 ? 5 : 1;
  for (uint32_t m = 0; m < end; m += m + step < end ? step : 1) {
    const double low = decode(format, m << pad_bits(format));
    const double gap = m + 1 < end ? decode(format, (m + 1) << pad_bits(format)) - low
                                   : low - decode(format, (m - 1) << pad_bits(format));
    for (double exact : {low, low + gap / 2}) {
      const auto value = static_cast<float>(exact);
      values.insert(values.end(),
                    {std::nextafter(value, 0.0F), value, std::nextafter(value, kInfinity)});
    }
  }
  const size_t size = values.size();
  for (size_t i = 0; i < size; ++i) {
    values.push_back(std::bit_cast<float>(std::bit_cast<uint32_t>(values[i]) ^ 0x80000000U));
  }
  return values;
}

}  // namespace mantissa::numerics
