#pragma once

#include <string>

#include "mantissa/base/api.h"

namespace mantissa::report {

/// The order of names as people count: numbers in them by their value, `block.2` before `block.10`.
MANTISSA_API bool comes_before(const std::string& a, const std::string& b);

}  // namespace mantissa::report
