#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "mantissa/base/api.h"
#include "mantissa/numerics/format.h"

namespace mantissa::numerics {

/// The formats of which a histogram says what they would make of its numbers.
inline constexpr std::array kNarrowFormats = {Format::bf16, Format::fp16, Format::fp8_e4m3,
                                              Format::fp8_e5m2};

/// What one rounding to nearest even makes of finite numbers that are not 0.
struct NarrowCounts {
  int64_t zero = 0;
  int64_t subnormal = 0;
  int64_t overflow = 0;  // to infinity, or NaN in fp8_e4m3

  bool operator==(const NarrowCounts&) const = default;
};

/// Where the magnitudes of some numbers lie. FP16 numbers count by their value: its subnormals are
/// no subnormals of FP32.
struct ExponentHistogram {
  int64_t count = 0;  // numbers, those of any kind
  int64_t zeros = 0;  // of either sign
  int64_t nan = 0;
  int64_t positive_infinity = 0;
  int64_t negative_infinity = 0;
  float smallest = 0;  // magnitude of finite ones that are not 0; 0 without any
  float largest = 0;   // magnitude of finite ones; 0 without any

  /// Finite numbers with 2^(i - 127) <= magnitude < 2^(i - 126) in bins[i]. In bins[0] the
  /// subnormals of FP32; none in bins[255].
  std::array<int64_t, 256> bins = {};

  /// In the order of kNarrowFormats. Counted, not estimated from the bins: limits such as 65520 lie
  /// within a bin.
  std::array<NarrowCounts, kNarrowFormats.size()> narrow = {};

  int64_t num_nonfinite() const { return nan + positive_infinity + negative_infinity; }

  /// Throws InvalidArgument for a format that is not one of kNarrowFormats.
  MANTISSA_API const NarrowCounts& in(Format format) const;

  /// As if the numbers of `other` had been counted too.
  MANTISSA_API void merge(const ExponentHistogram& other);

  bool operator==(const ExponentHistogram&) const = default;
};

/// The unbiased exponent of a bin: -127 for that of the subnormals.
constexpr int exponent_of_bin(size_t bin) { return static_cast<int>(bin) - 127; }

/// One reading, with the widest vector instructions of the running processor; the result depends on
/// none of them.
MANTISSA_API ExponentHistogram exponent_histogram(std::span<const float> values);

/// Of bit patterns: bf16 or fp16, else InvalidArgument.
MANTISSA_API ExponentHistogram exponent_histogram(Format format,
                                                  std::span<const uint16_t> patterns);

/// The same, number by number: what the fast one is tested against.
MANTISSA_API ExponentHistogram exponent_histogram_reference(std::span<const float> values);

/// log2 of the largest finite number of `format` over the largest of these: below 0 it overflows.
/// Infinity without a finite number other than 0.
MANTISSA_API double headroom_bits(const ExponentHistogram& histogram, Format format);

/// Finite numbers that are at least 2^(e + 1 - bits), where 2^e <= max < 2^(e + 1) of `format`:
/// with 3 bits in fp16 those from 8192 on. Those that overflow count too. Exact: powers of two part
/// bins. `bits` from 1 on, else InvalidArgument.
MANTISSA_API int64_t num_near_overflow(const ExponentHistogram& histogram, Format format, int bits);

}  // namespace mantissa::numerics
