#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "mantissa/base/api.h"
#include "mantissa/numerics/bit_pattern.h"
#include "mantissa/numerics/format.h"

namespace mantissa::numerics {

/// What a format makes of a value, rounded to nearest even.
struct Description {
  Format format = Format::fp32;
  std::string input;     // as given
  double value = 0.0;    // the input, as the nearest double
  uint32_t pattern = 0;  // bit_pattern.h
  double nearest = 0.0;  // the number of that pattern
  NumberClass number_class = NumberClass::zero;
  uint32_t sign_field = 0;
  uint32_t exponent_field = 0;
  uint32_t fraction_field = 0;
  // nearest - value, exact when the input is a double and in general to double precision; and its
  // size in units of |value| and of ulp. NaN when there is no error to speak of: for infinity,
  // NaN, overflow, underflow, and relative to zero.
  double error = 0.0;
  double relative_error = 0.0;
  double error_in_ulps = 0.0;
  double ulp = 0.0;            // of `value`; NaN for infinity and NaN
  bool is_overflow = false;    // a finite input became infinity or NaN
  bool is_underflow = false;   // an input that is not zero is zero even as a double
  uint32_t below_pattern = 0;  // the neighbours of `nearest`
  uint32_t above_pattern = 0;
  double below = 0.0;
  double above = 0.0;
};

MANTISSA_API Description describe(Format format, double value);

/// `text` is a number as parse_exact reads it, rounded once from all of its digits, or a bit
/// pattern of the format: `bits:0x3dcd`, `bits:0b0011110111001101`. Throws InvalidArgument.
MANTISSA_API Description describe(Format format, std::string_view text);

/// What `mantissa numerics FORMAT VALUE` prints: aligned lines, the last with a line end.
MANTISSA_API std::string to_text(const Description& description);

/// One JSON object on one line; infinities and NaN are the strings "inf", "-inf" and "nan".
MANTISSA_API std::string to_json(const Description& description);

/// The decimal with the fewest digits, rounded to nearest, that `format` rounds to `pattern`.
MANTISSA_API std::string shortest_decimal(Format format, uint32_t pattern);

/// All digits of a number: a double has at most 767.
MANTISSA_API std::string exact_decimal(double value);

}  // namespace mantissa::numerics
