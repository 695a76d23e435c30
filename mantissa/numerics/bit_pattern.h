#pragma once

#include <cstdint>
#include <string_view>

#include "mantissa/base/api.h"
#include "mantissa/numerics/format.h"

namespace mantissa::numerics {

/// A bit pattern is the stored form of a number: in the low `storage_bits` of a uint32_t, the sign
/// first, then exponent, fraction and, for tf32 only, 13 zero bits. `magnitude` is what follows
/// the sign, without those zeros: magnitudes are ordered as the numbers are.

/// Zero bits below the fraction: 13 for tf32, else 0.
constexpr int pad_bits(Format format) {
  return info(format).storage_bits - 1 - info(format).exponent_bits - info(format).fraction_bits;
}

constexpr uint32_t sign_mask(Format format) { return 1U << (info(format).storage_bits - 1); }

/// The magnitude of the largest finite number. The next larger one is where overflow goes:
/// infinity, or NaN in fp8_e4m3, which has no infinity.
constexpr uint32_t max_magnitude(Format format) {
  const FormatInfo& f = info(format);
  const uint32_t end = 1U << (f.exponent_bits + f.fraction_bits);
  return f.has_infinity ? end - (1U << f.fraction_bits) - 1 : end - 2;
}

/// The smallest magnitude that is NaN.
constexpr uint32_t min_nan_magnitude(Format format) {
  return max_magnitude(format) + (info(format).has_infinity ? 2 : 1);
}

/// The pattern that a conversion gives for every NaN: positive and quiet.
/// fp32 and tf32 0x7fc00000, bf16 0x7fc0, fp16 0x7e00, both fp8 0x7f.
constexpr uint32_t nan_pattern(Format format) {
  if (info(format).storage_bits == 8) {
    return 0x7F;  // of the NaNs of e5m2 the one that c10 gives
  }
  const FormatInfo& f = info(format);
  return ((1U << (f.exponent_bits + 1)) - 1) << (f.fraction_bits - 1 + pad_bits(format));
}

/// Throws InvalidArgument when bits are set outside the format.
MANTISSA_API uint32_t magnitude(Format format, uint32_t pattern);

enum class NumberClass : uint8_t { zero, subnormal, normal, infinity, nan };

MANTISSA_API std::string_view to_string(NumberClass number_class);

/// Throws InvalidArgument when bits are set outside the format.
MANTISSA_API NumberClass classify(Format format, uint32_t pattern);

}  // namespace mantissa::numerics
