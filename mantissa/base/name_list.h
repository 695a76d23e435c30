#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "mantissa/base/api.h"

namespace mantissa {

/// The names of `a,b`, in order. `where` is the option that was given it. Throws InvalidArgument
/// for an empty name, also where there is nothing at all, and for one that is there twice.
MANTISSA_API std::vector<std::string> parse_names(std::string_view where, const std::string& text);

/// The same over an option that was given several times: `--device a,b --device c`.
MANTISSA_API std::vector<std::string> parse_names(std::string_view where,
                                                  const std::vector<std::string>& texts);

}  // namespace mantissa
