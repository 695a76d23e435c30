#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "mantissa/base/api.h"

namespace mantissa {

/// The candidate with the smallest edit distance (Levenshtein) to `word`, the first of equals;
/// empty when there are no candidates or none is near enough to be a likely slip of the pen:
/// more than half of `word` would have to change.
MANTISSA_API std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

/// `; did you mean "x"?` for the nearest candidate, or `; valid: a b c` when none is near.
MANTISSA_API std::string suggestion(std::string_view word,
                                    const std::vector<std::string>& candidates);

}  // namespace mantissa
