#include "mantissa/numerics/ulp.h"

#include <algorithm>
#include <cmath>

#include "mantissa/base/error.h"
#include "mantissa/numerics/bit_pattern.h"

namespace mantissa::numerics {
namespace {

// Numbers in order as integers: a magnitude with the sign of the number, 0 for both zeros.
int64_t rank(Format format, uint32_t pattern) {
  const int64_t m = magnitude(format, pattern);
  return (pattern & sign_mask(format)) != 0 ? -m : m;
}

uint32_t pattern_of(Format format, int64_t rank) {
  const auto m = static_cast<uint32_t>(std::abs(rank));
  return m << pad_bits(format) | (rank < 0 ? sign_mask(format) : 0);
}

uint32_t step(Format format, uint32_t pattern, int64_t direction) {
  const NumberClass number_class = classify(format, pattern);
  const int64_t from = rank(format, pattern);
  if (number_class == NumberClass::nan ||
      (number_class == NumberClass::infinity && (from > 0) == (direction > 0))) {
    return pattern;
  }
  // IEEE 754 keeps the sign when a negative number steps up to zero.
  if (direction > 0 && from == -1) {
    return sign_mask(format);
  }
  return pattern_of(format, from + direction);
}

}  // namespace

double ulp(Format format, double value) {
  const FormatInfo& f = info(format);
  const double clamped = std::clamp(std::abs(value), f.smallest_normal, f.max);
  return std::isnan(value) ? value : std::ldexp(1.0, std::ilogb(clamped) - f.fraction_bits);
}

uint32_t next_up(Format format, uint32_t pattern) { return step(format, pattern, 1); }

uint32_t next_down(Format format, uint32_t pattern) { return step(format, pattern, -1); }

int64_t ulps_between(Format format, uint32_t from, uint32_t to) {
  for (uint32_t pattern : {from, to}) {
    MANTISSA_CHECK(classify(format, pattern) != NumberClass::nan, InvalidArgument,
                   "ulps_between: 0x", std::hex, pattern, " is NaN in ", to_string(format),
                   "; a distance needs two numbers");
  }
  return rank(format, to) - rank(format, from);
}

double error_in_ulps(Format format, double approximate, double reference) {
  return std::abs(approximate - reference) / ulp(format, reference);
}

}  // namespace mantissa::numerics
