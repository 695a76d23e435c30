#include "mantissa/numerics/rounding.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/base/nearest.h"
#include "mantissa/numerics/bit_pattern.h"

namespace mantissa::numerics {
namespace {

constexpr std::array<std::string_view, 3> kRoundingNames = {"nearest_even", "toward_zero",
                                                            "stochastic"};
constexpr std::array<std::string_view, 2> kOverflowNames = {"ieee", "saturate"};

template <size_t kSize>
size_t index_of(std::string_view name, const std::array<std::string_view, kSize>& names,
                std::string_view what) {
  const auto* found = std::find(names.begin(), names.end(), name);
  MANTISSA_CHECK(found != names.end(), InvalidArgument, what, ": unknown \"", name, "\"",
                 suggestion(name, std::vector<std::string>(names.begin(), names.end())));
  return static_cast<size_t>(found - names.begin());
}

// Whether what `shift` cuts off the significand rounds the kept part away from zero.
bool rounds_up(uint64_t significand, int shift, Rounding rounding, uint32_t random_bits) {
  // Of a shift over 64 nothing is kept, and what is cut is less than half of the last kept place.
  const uint64_t cut = shift >= 64 ? significand >> std::min(shift - 64, 63)
                                   : significand << (64 - shift);  // in 2^-64 of that place
  switch (rounding) {
    case Rounding::nearest_even: {
      constexpr uint64_t kHalf = uint64_t{1} << 63;
      const bool odd = shift < 64 && ((significand >> shift) & 1) != 0;
      return cut > kHalf || (cut == kHalf && odd);
    }
    case Rounding::toward_zero:
      return false;
    case Rounding::stochastic:
      return (cut >> 32) + random_bits > 0xFFFFFFFF;
  }
  return false;
}

// The magnitude of a finite number other than zero, as if the exponent had no upper limit.
uint64_t unlimited_magnitude(const FormatInfo& f, const Exact& value, Rounding rounding,
                             uint32_t random_bits) {
  const int smallest_exponent = 1 - f.bias;
  const int exponent = std::max(value.exponent, smallest_exponent);
  const int shift = std::min(63 - f.fraction_bits + exponent - value.exponent, 1000);
  const uint64_t kept = shift >= 64 ? 0 : value.significand >> shift;
  // The leading bit of a normal number adds 1 to the exponent field, and so does a carry.
  return (static_cast<uint64_t>(exponent - smallest_exponent) << f.fraction_bits) + kept +
         (rounds_up(value.significand, shift, rounding, random_bits) ? 1 : 0);
}

}  // namespace

std::string_view to_string(Rounding rounding) {
  return kRoundingNames.at(static_cast<size_t>(rounding));
}

std::string_view to_string(Overflow overflow) {
  return kOverflowNames.at(static_cast<size_t>(overflow));
}

Rounding parse_rounding(std::string_view name) {
  return static_cast<Rounding>(index_of(name, kRoundingNames, "rounding"));
}

Overflow parse_overflow(std::string_view name) {
  return static_cast<Overflow>(index_of(name, kOverflowNames, "overflow"));
}

uint32_t encode(Format format, const Exact& value, Rounding rounding, uint32_t random_bits,
                Overflow overflow) {
  if (value.kind == Exact::Kind::nan) {
    return nan_pattern(format);
  }
  const uint32_t largest = max_magnitude(format);
  uint32_t result = 0;
  if (value.kind == Exact::Kind::infinity) {
    result = overflow == Overflow::saturate ? largest : largest + 1;
  } else if (value.significand != 0) {
    const uint32_t end =
        overflow == Overflow::saturate || rounding == Rounding::toward_zero ? largest : largest + 1;
    result = static_cast<uint32_t>(
        std::min<uint64_t>(unlimited_magnitude(info(format), value, rounding, random_bits), end));
  }
  return result << pad_bits(format) | (value.negative ? sign_mask(format) : 0);
}

uint32_t encode(Format format, float value, Rounding rounding, uint32_t random_bits,
                Overflow overflow) {
  return encode(format, exact(value), rounding, random_bits, overflow);
}

float decode(Format format, uint32_t pattern) {
  const FormatInfo& f = info(format);
  const uint32_t m = magnitude(format, pattern);
  const uint32_t sign = (pattern & sign_mask(format)) << (32 - f.storage_bits);
  const int low_bits = 23 - f.fraction_bits;
  if (f.bias == 127) {
    return std::bit_cast<float>(sign | m << low_bits);
  }
  if (m > max_magnitude(format)) {
    const uint32_t quiet = m >= min_nan_magnitude(format) ? 0x400000 : 0;
    return std::bit_cast<float>(sign | 0x7F800000 | quiet | (m << low_bits & 0x7FFFFF));
  }
  if (m >> f.fraction_bits == 0) {
    const float absolute = static_cast<float>(m) * static_cast<float>(f.smallest_subnormal);
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(absolute));
  }
  const uint32_t rebias = static_cast<uint32_t>(127 - f.bias) << 23;
  return std::bit_cast<float>(sign | ((m << low_bits) + rebias));
}

float round_to(Format format, float value, Rounding rounding, uint32_t random_bits,
               Overflow overflow) {
  return decode(format, encode(format, value, rounding, random_bits, overflow));
}

}  // namespace mantissa::numerics
