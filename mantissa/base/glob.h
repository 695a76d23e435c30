#pragma once

#include <string_view>

#include "mantissa/base/api.h"

namespace mantissa {

/// Whether all of `text` matches `pattern`: `*` stands for any number of characters, dots too,
/// `?` for one, all else for itself. `blocks.*.norm*` matches `blocks.3.norm1.weight`.
MANTISSA_API bool glob_match(std::string_view pattern, std::string_view text);

}  // namespace mantissa
