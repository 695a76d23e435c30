#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/numerics/format.h"

namespace mantissa::train {

/// A number with the document that states it.
struct Figure {
  double value = 0;
  std::string source;
};

/// What a vendor says of a device, as a program sees one.
struct DeviceSpec {
  std::string name;
  std::string note;                          // what to know of its numbers; may be empty
  Figure memory;                             // bytes
  Figure bandwidth;                          // of the memory, bytes a second
  std::map<numerics::Format, Figure> flops;  // operations a second, of dense products
};

/// Those of devices.toml in this folder, in its order.
MANTISSA_API const std::vector<DeviceSpec>& shipped_devices();

/// Reads a text like devices.toml. Throws InvalidArgument, which begins with `where`, for a missing
/// or unknown key, a number without its source, and a number that is not positive.
MANTISSA_API std::vector<DeviceSpec> parse_devices(std::string_view text, const std::string& where);

/// In any case of letters, with `-`, `_` and spaces alike. Throws InvalidArgument, which begins
/// with the `option` that gave the name, with those of `devices` that begin so or the nearest one.
MANTISSA_API const DeviceSpec& find_device(const std::vector<DeviceSpec>& devices,
                                           std::string_view name,
                                           std::string_view option = "--device");

}  // namespace mantissa::train
