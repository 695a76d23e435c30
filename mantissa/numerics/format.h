#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "mantissa/base/api.h"

namespace mantissa::numerics {

/// The number formats that training meets, as values.
/// fp32, fp16: IEEE 754-2019 binary32 and binary16. bf16: the upper half of binary32.
/// tf32: binary32 with a 10-bit fraction, stored in 32 bits (NVIDIA A100 whitepaper, 2020).
/// fp8_e4m3 (without infinities, "FN") and fp8_e5m2: OCP 8-bit floating point specification 1.0.
enum class Format : uint8_t { fp32, tf32, bf16, fp16, fp8_e4m3, fp8_e5m2 };

inline constexpr std::array kFormats = {Format::fp32, Format::tf32,     Format::bf16,
                                        Format::fp16, Format::fp8_e4m3, Format::fp8_e5m2};

struct FormatInfo {
  std::string_view name;  // as in TOML, JSON and on the command line
  int storage_bits;
  int exponent_bits;
  int fraction_bits;  // stored ones: 23 for fp32
  int bias;
  bool has_infinity;
  double max;                 // largest finite value
  double smallest_normal;     // positive
  double smallest_subnormal;  // positive
  double epsilon;             // 1 to the next larger value: 2^-fraction_bits
};

MANTISSA_API const FormatInfo& info(Format format);

MANTISSA_API std::string_view to_string(Format format);

/// Throws InvalidArgument with the nearest valid name.
MANTISSA_API Format parse_format(std::string_view name);

}  // namespace mantissa::numerics
