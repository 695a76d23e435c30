#include "mantissa/train/device_spec.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>

#include <toml++/toml.h>

#include "mantissa/base/error.h"
#include "mantissa/base/nearest.h"
#include "mantissa/base/toml_advice.h"
#include "mantissa/train/devices_text.h"

namespace mantissa::train {
namespace {

Figure figure(const toml::node& node, const std::string& where) {
  const toml::table* const table = node.as_table();
  const auto value = table == nullptr ? std::optional<double>() : (*table)["value"].value<double>();
  const auto source =
      table == nullptr ? std::optional<std::string>() : (*table)["source"].value<std::string>();
  MANTISSA_CHECK(value && source && !source->empty() && table->size() == 2, InvalidArgument, where,
                 " is not { value = NUMBER, source = \"DOCUMENT\" }; write both");
  MANTISSA_CHECK(*value > 0 && std::isfinite(*value), InvalidArgument, where, ": value is ", *value,
                 "; it must be positive");
  return {*value, *source};
}

std::optional<numerics::Format> format_named(std::string_view name) {
  for (const numerics::Format format : numerics::kFormats) {
    if (to_string(format) == name) {
      return format;
    }
  }
  return std::nullopt;
}

void read_key(const std::string& key, const toml::node& node, const std::string& where,
              DeviceSpec& device) {
  if (key == "name" || key == "note") {
    const auto text = node.value<std::string>();
    MANTISSA_CHECK(text, InvalidArgument, where, " is no text; write it in quotes");
    (key == "name" ? device.name : device.note) = *text;
  } else if (key == "memory") {
    device.memory = figure(node, where);
  } else if (key == "bandwidth") {
    device.bandwidth = figure(node, where);
  } else {
    const auto format = format_named(key);
    std::vector<std::string> valid = {"name", "note", "memory", "bandwidth"};
    for (const numerics::Format known : numerics::kFormats) {
      valid.emplace_back(to_string(known));
    }
    MANTISSA_CHECK(format, InvalidArgument, where, ": unknown key", suggestion(key, valid));
    device.flops[*format] = figure(node, where);
  }
}

DeviceSpec read_device(const toml::node& node, const std::string& where) {
  const toml::table* const table = node.as_table();
  MANTISSA_CHECK(table != nullptr, InvalidArgument, where,
                 " is no table; begin it with [[device]]");
  DeviceSpec device;
  for (const auto& [key, value] : *table) {
    read_key(std::string(key.str()), value, concat(where, ".", key.str()), device);
  }
  MANTISSA_CHECK(!device.name.empty() && device.memory.value > 0 && device.bandwidth.value > 0,
                 InvalidArgument, where, ": lacks a name, memory or bandwidth; write all three");
  return device;
}

std::string plain(std::string_view name) {
  std::string result;
  for (const char letter : name) {
    if (letter != '-' && letter != '_' && letter != ' ') {
      result += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    }
  }
  return result;
}

}  // namespace

std::vector<DeviceSpec> parse_devices(std::string_view text, const std::string& where) {
  toml::table table;
  try {
    table = toml::parse(text, where);
  } catch (const toml::parse_error& error) {
    throw InvalidArgument(concat(
        where, ":", error.source().begin.line, ": ", error.description(), "; ",
        toml_advice(error.description(), "write [[device]] and lines of KEY = VALUE below it")));
  }
  const toml::array* const entries = table["device"].as_array();
  MANTISSA_CHECK(entries != nullptr && table.size() == 1, InvalidArgument, where,
                 ": holds no list of devices alone; begin each with [[device]]");
  std::vector<DeviceSpec> devices;
  devices.reserve(entries->size());
  for (const toml::node& entry : *entries) {
    devices.push_back(read_device(entry, concat(where, ": device ", devices.size())));
  }
  return devices;
}

const std::vector<DeviceSpec>& shipped_devices() {
  static const std::vector<DeviceSpec> devices = parse_devices(kDevicesText, "devices.toml");
  return devices;
}

const DeviceSpec& find_device(const std::vector<DeviceSpec>& devices, std::string_view name,
                              std::string_view option) {
  std::vector<std::string> names;
  names.reserve(devices.size());
  std::string beginning_so;  // `A100` is of 40 GB or of 80
  for (const DeviceSpec& device : devices) {
    if (plain(device.name) == plain(name)) {
      return device;
    }
    if (!plain(name).empty() && plain(device.name).starts_with(plain(name))) {
      beginning_so += " " + device.name;
    }
    names.push_back(device.name);
  }
  throw InvalidArgument(
      concat(option, ": unknown device \"", name, "\"",
             beginning_so.empty() ? suggestion(name, names) : "; valid:" + beginning_so));
}

}  // namespace mantissa::train
