#pragma once

#include <array>
#include <cstddef>
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

namespace detail {
// In the order of the enumerators.
inline constexpr std::array<FormatInfo, kFormats.size()> kInfos = {{
    {"fp32", 32, 8, 23, 127, true, 0x1.fffffep127, 0x1p-126, 0x1p-149, 0x1p-23},
    {"tf32", 32, 8, 10, 127, true, 0x1.ffcp127, 0x1p-126, 0x1p-136, 0x1p-10},
    {"bf16", 16, 8, 7, 127, true, 0x1.fep127, 0x1p-126, 0x1p-133, 0x1p-7},
    {"fp16", 16, 5, 10, 15, true, 0x1.ffcp15, 0x1p-14, 0x1p-24, 0x1p-10},
    {"fp8_e4m3", 8, 4, 3, 7, false, 448.0, 0x1p-6, 0x1p-9, 0x1p-3},
    {"fp8_e5m2", 8, 5, 2, 15, true, 57344.0, 0x1p-14, 0x1p-16, 0x1p-2},
}};
}  // namespace detail

constexpr const FormatInfo& info(Format format) {
  return detail::kInfos.at(static_cast<size_t>(format));
}

MANTISSA_API std::string_view to_string(Format format);

/// Throws InvalidArgument with the nearest valid name.
MANTISSA_API Format parse_format(std::string_view name);

}  // namespace mantissa::numerics
