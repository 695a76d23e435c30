#include "mantissa/numerics/format.h"

#include <string>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/base/nearest.h"

namespace mantissa::numerics {
std::string_view to_string(Format format) { return info(format).name; }

Format parse_format(std::string_view name) {
  return parse_enumerator(name, kFormats, "format: unknown");
}

}  // namespace mantissa::numerics
