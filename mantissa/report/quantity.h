#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "mantissa/base/api.h"

namespace mantissa::report {

/// In the place of a number.
inline constexpr double kNotKnown = std::numeric_limits<double>::quiet_NaN();

/// `123 B`, `45.6 kB`, `7.89 MB`: decimal prefixes, three significant digits.
MANTISSA_API std::string bytes_text(int64_t bytes);

/// `812 us`, `12.3 ms`, `4.56 s`.
MANTISSA_API std::string seconds_text(double seconds);

/// `42s`, `3m05s`, `2h07m`; `?` when not finite or negative.
MANTISSA_API std::string duration_text(double seconds);

/// `950`, `12.3k`, `4.56M`.
MANTISSA_API std::string count_text(double count);

/// With that many digits behind the point; `-` for what is not known (NaN).
MANTISSA_API std::string decimal_text(double value, int digits);

/// A power of two as `2^16`, any other value with four significant digits.
MANTISSA_API std::string scale_text(double scale);

}  // namespace mantissa::report
