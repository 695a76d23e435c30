#pragma once

#include <optional>
#include <string_view>

#include "mantissa/base/api.h"

namespace mantissa {

// JSON has no word for NaN and the infinities; our files hold them as the strings "nan", "inf" and
// "-inf".

/// Nothing for a finite number.
MANTISSA_API std::optional<std::string_view> nonfinite_name(double value);

/// Nothing for any other text.
MANTISSA_API std::optional<double> nonfinite_value(std::string_view name);

}  // namespace mantissa
