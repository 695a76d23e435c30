#pragma once

#include <cstdint>
#include <string_view>

#include "mantissa/base/api.h"

namespace mantissa::numerics {

/// A real number, infinity or NaN with enough bits that rounding it, to nearest or toward zero, to
/// any format gives what rounding all of its digits would; rounding twice, first to double, would
/// not. The value is significand * 2^(exponent - 63). A number that needs more bits is cut, and
/// the last bit is 1 to say that something follows (rounding to odd: Boldo and Melquiond,
/// "Emulation of a FMA and correctly rounded sums", IEEE Trans. Computers 57, 2008). Of a decimal
/// only the first 53 bits and the side of the middle after them are kept.
struct Exact {
  enum class Kind : uint8_t { finite, infinity, nan };

  Kind kind = Kind::finite;
  bool negative = false;
  int exponent = 0;          // of the leading bit
  uint64_t significand = 0;  // leading bit set, or 0 for zero
};

MANTISSA_API Exact exact(float value);
MANTISSA_API Exact exact(double value);

/// Reads a whole text: a decimal (`-1.5e-3`), a hexadecimal number (`0x1.8p-3`), `inf` or `nan`,
/// in either case, with an optional sign; of any length. Throws InvalidArgument.
MANTISSA_API Exact parse_exact(std::string_view text);

/// The nearest double, ties to even.
MANTISSA_API double to_double(const Exact& value);

}  // namespace mantissa::numerics
