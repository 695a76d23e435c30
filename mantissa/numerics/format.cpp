#include "mantissa/numerics/format.h"

#include <string>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/base/nearest.h"

namespace mantissa::numerics {
namespace {

// In the order of the enumerators.
constexpr std::array<FormatInfo, kFormats.size()> kInfos = {{
    {"fp32", 32, 8, 23, 127, true, 0x1.fffffep127, 0x1p-126, 0x1p-149, 0x1p-23},
    {"tf32", 32, 8, 10, 127, true, 0x1.ffcp127, 0x1p-126, 0x1p-136, 0x1p-10},
    {"bf16", 16, 8, 7, 127, true, 0x1.fep127, 0x1p-126, 0x1p-133, 0x1p-7},
    {"fp16", 16, 5, 10, 15, true, 0x1.ffcp15, 0x1p-14, 0x1p-24, 0x1p-10},
    {"fp8_e4m3", 8, 4, 3, 7, false, 448.0, 0x1p-6, 0x1p-9, 0x1p-3},
    {"fp8_e5m2", 8, 5, 2, 15, true, 57344.0, 0x1p-14, 0x1p-16, 0x1p-2},
}};

}  // namespace

const FormatInfo& info(Format format) { return kInfos.at(static_cast<size_t>(format)); }

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
