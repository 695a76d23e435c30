#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/base/error.h"

namespace mantissa {

/// The candidate with the smallest edit distance (Levenshtein) to `word` in letters of any case,
/// the first of equals; empty when there are no candidates or none is near enough to be a likely
/// slip of the pen: more than a third of `word`, rounded up, would have to change.
MANTISSA_API std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

/// `; did you mean "x"?` for the nearest candidate, or `; valid: a b c` when none is near.
MANTISSA_API std::string suggestion(std::string_view word,
                                    const std::vector<std::string>& candidates);

/// The one of `values` that to_string() calls `name`. Throws InvalidArgument that begins with
/// `what` and ends with the suggestion.
template <typename Enum, size_t size>
Enum parse_enumerator(std::string_view name, const std::array<Enum, size>& values,
                      std::string_view what) {
  std::vector<std::string> names;
  names.reserve(size);
  for (const Enum value : values) {
    if (to_string(value) == name) {
      return value;
    }
    names.emplace_back(to_string(value));
  }
  throw InvalidArgument(concat(what, " \"", name, "\"", suggestion(name, names)));
}

}  // namespace mantissa
