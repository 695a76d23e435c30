#pragma once

#include <string_view>

namespace mantissa::train {

/// devices.toml of this folder, put into the library when it is built.
extern const std::string_view kDevicesText;

}  // namespace mantissa::train
