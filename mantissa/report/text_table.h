#pragma once

#include <string>
#include <vector>

#include "mantissa/base/api.h"

namespace mantissa::report {

/// Rows of cells as aligned text: the first column to the left, the others to the right, two
/// spaces between. A row with fewer cells than the widest is filled with empty ones.
MANTISSA_API std::string text_table(const std::vector<std::vector<std::string>>& rows);

}  // namespace mantissa::report
