#pragma once

#include <nlohmann/json.hpp>

#include "mantissa/base/nonfinite.h"

namespace mantissa {

/// The number, or the name of one that is not finite (nonfinite.h).
inline nlohmann::ordered_json json_number(double value) {
  const auto name = nonfinite_name(value);
  return name ? nlohmann::ordered_json(*name) : nlohmann::ordered_json(value);
}

}  // namespace mantissa
