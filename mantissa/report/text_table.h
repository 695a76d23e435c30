#pragma once

#include <string>
#include <vector>

#include "mantissa/base/api.h"

namespace mantissa::report {

/// Rows of cells as aligned text, two spaces between: the first column to the left, the others to
/// the right unless `to_left`, by column, says otherwise. A row with fewer cells than the widest is
/// filled with empty ones. A character of UTF-8 is one column wide.
MANTISSA_API std::string text_table(const std::vector<std::vector<std::string>>& rows,
                                    const std::vector<bool>& to_left = {true});

}  // namespace mantissa::report
