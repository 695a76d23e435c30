#pragma once

#include <string>
#include <string_view>

#include "mantissa/base/api.h"

namespace mantissa {

/// What to do about a file that toml++ refuses with `description`; `otherwise` where only the
/// grammar of TOML helps.
MANTISSA_API std::string toml_advice(std::string_view description, std::string_view otherwise);

}  // namespace mantissa
