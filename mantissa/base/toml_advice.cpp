#include "mantissa/base/toml_advice.h"

namespace mantissa {

std::string toml_advice(std::string_view description, std::string_view otherwise) {
  const auto says = [&](std::string_view words) {
    return description.find(words) != std::string_view::npos;
  };
  if (says("cannot redefine")) {
    return "a name is given once, keep one of them";
  }
  if (says("not representable in 64 bits")) {
    return "integers are -9223372036854775808 to 9223372036854775807, other numbers at most "
           "1.8e308";
  }
  return std::string(otherwise);
}

}  // namespace mantissa
