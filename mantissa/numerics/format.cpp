#include "mantissa/numerics/format.h"

#include <string>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/base/nearest.h"

namespace mantissa::numerics {
std::string_view to_string(Format format) { return info(format).name; }

Format parse_format(std::string_view name) {
  std::vector<std::string> names;
  for (Format format : kFormats) {
    if (to_string(format) == name) {
      return format;
    }
    names.emplace_back(to_string(format));
  }
  throw InvalidArgument(concat("format: unknown \"", name, "\"", suggestion(name, names)));
}

}  // namespace mantissa::numerics
