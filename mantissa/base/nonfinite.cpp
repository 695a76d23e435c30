#include "mantissa/base/nonfinite.h"

#include <cmath>
#include <limits>

namespace mantissa {

std::optional<std::string_view> nonfinite_name(double value) {
  if (std::isnan(value)) {
    return "nan";
  }
  if (std::isinf(value)) {
    return value > 0 ? "inf" : "-inf";
  }
  return std::nullopt;
}

std::optional<double> nonfinite_value(std::string_view name) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (name == "nan") {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (name == "inf") {
    return kInfinity;
  }
  if (name == "-inf") {
    return -kInfinity;
  }
  return std::nullopt;
}

}  // namespace mantissa
