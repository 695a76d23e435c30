#include "mantissa/checkpoint/manifest.h"

#include <charconv>
#include <limits>

#include <nlohmann/json.hpp>

#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"
#include "mantissa/base/json_number.h"
#include "mantissa/base/nonfinite.h"
#include "mantissa/checkpoint/layout.h"

namespace mantissa::checkpoint {
namespace {

using nlohmann::ordered_json;
using Scalar = tensor::StateDict::Scalar;

ordered_json json_of(const Scalar& scalar) {
  if (const int64_t* integer = std::get_if<int64_t>(&scalar)) {
    return {{"integer", *integer}};
  }
  if (const double* real = std::get_if<double>(&scalar)) {
    return {{"real", json_number(*real)}};
  }
  return {{"text", std::get<std::string>(scalar)}};
}

// What is not as it should be throws one of nlohmann's exceptions or Malformed; parse_manifest()
// makes both into one Corruption.
struct Malformed {};

void require(bool holds) {
  if (!holds) {
    throw Malformed();
  }
}

uint64_t hash_of(const ordered_json& json) {
  const auto& text = json.get_ref<const std::string&>();
  uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, 16);
  require(text == hex(value));
  return value;
}

int64_t integer_of(const ordered_json& json) {
  require(json.is_number_integer());
  require(!json.is_number_unsigned() ||
          json.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()});
  return json.get<int64_t>();
}

double real_of(const ordered_json& json) {
  if (json.is_string()) {
    const auto value = nonfinite_value(json.get_ref<const std::string&>());
    require(value.has_value());
    return *value;
  }
  require(json.is_number());
  return json.get<double>();
}

Scalar scalar_of(const ordered_json& json) {
  require(json.is_object() && json.size() == 1);
  if (json.contains("integer")) {
    return integer_of(json.at("integer"));
  }
  if (json.contains("real")) {
    return real_of(json.at("real"));
  }
  return json.at("text").get_ref<const std::string&>();
}

TensorRecord tensor_of(const ordered_json& json) {
  TensorRecord record;
  record.dtype = json.at("dtype").get_ref<const std::string&>();
  require(json.at("shape").is_array());
  for (const ordered_json& length : json.at("shape")) {
    record.shape.push_back(integer_of(length));
  }
  record.xxh3 = hash_of(json.at("xxh3"));
  return record;
}

Manifest manifest_of(const ordered_json& json) {
  Manifest manifest;
  manifest.step = integer_of(json.at("step"));
  for (const auto& [name, value] : json.at("environment").items()) {
    manifest.environment[name] = value.get_ref<const std::string&>();
  }
  for (const auto& [name, value] : json.at("scalars").items()) {
    manifest.scalars[name] = scalar_of(value);
  }
  for (const auto& [name, value] : json.at("tensors").items()) {
    manifest.tensors[name] = tensor_of(value);
  }
  require(json.at("files").size() == 1);
  const ordered_json& file = json.at("files").at(kTensorsFile);
  manifest.tensors_file = {integer_of(file.at("size_bytes")), hash_of(file.at("xxh3"))};
  return manifest;
}

}  // namespace

std::string format_manifest(const Manifest& manifest, const std::string& where) {
  ordered_json json;
  json["schema"] = kSchema;
  json["step"] = manifest.step;
  json["environment"] = manifest.environment;
  json["scalars"] = ordered_json::object();
  for (const auto& [name, scalar] : manifest.scalars) {
    json["scalars"][name] = json_of(scalar);
  }
  json["files"][kTensorsFile] = {{"size_bytes", manifest.tensors_file.size_bytes},
                                 {"xxh3", hex(manifest.tensors_file.xxh3)}};
  json["tensors"] = ordered_json::object();
  for (const auto& [name, record] : manifest.tensors) {
    json["tensors"][name] = {
        {"dtype", record.dtype}, {"shape", record.shape}, {"xxh3", hex(record.xxh3)}};
  }
  try {
    return json.dump(1) + "\n";
  } catch (const nlohmann::json::exception&) {
    throw InvalidArgument(concat(where,
                                 ": a name or text of the state is not UTF-8; keep bytes "
                                 "in a uint8 tensor"));
  }
}

Manifest parse_manifest(std::string_view text, const std::string& where) {
  try {
    const ordered_json json = ordered_json::parse(text);
    const int64_t schema = integer_of(json.at("schema"));
    MANTISSA_CHECK(schema <= kSchema, Unsupported, where, ": of schema ", schema,
                   ", this mantissa reads up to ", kSchema, "; use a later mantissa");
    return manifest_of(json);
  } catch (const nlohmann::json::exception&) {
  } catch (const Malformed&) {
  }
  throw Corruption(concat(where, ": ", kManifestFile,
                          " is not a manifest; the checkpoint is damaged, use another"));
}

}  // namespace mantissa::checkpoint
