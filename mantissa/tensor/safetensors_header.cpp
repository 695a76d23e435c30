#include "mantissa/tensor/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/tensor/safetensors.h"

namespace mantissa::tensor {
namespace {

constexpr std::pair<const char*, at::ScalarType> kDtypes[] = {{"F64", at::kDouble},
                                                              {"F32", at::kFloat},
                                                              {"F16", at::kHalf},
                                                              {"BF16", at::kBFloat16},
                                                              {"F8_E4M3", at::kFloat8_e4m3fn},
                                                              {"F8_E5M2", at::kFloat8_e5m2},
                                                              {"I64", at::kLong},
                                                              {"I32", at::kInt},
                                                              {"I16", at::kShort},
                                                              {"I8", at::kChar},
                                                              {"U8", at::kByte},
                                                              {"BOOL", at::kBool}};

constexpr const char* kMetadata = "__metadata__";
constexpr size_t kMaxDimensions = 64;  // LibTorch's own limit

std::string valid_dtypes() {
  std::string names;
  for (const auto& [name, dtype] : kDtypes) {
    names += std::string(names.empty() ? "" : " ") + name;
  }
  return names;
}

// Receives the header piece by piece and accepts only its grammar, so that a hostile file can
// neither nest deeply nor be turned into a tree much larger than itself.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(const std::string& where) : where_(where) {}

  SafetensorsHeader take() { return std::move(header_); }

  bool key(string_t& name) override {
    switch (place_) {
      case Place::file:
        require_new(names_, name);
        entry_ = {};
        entry_.name = name;
        keys_.clear();
        break;
      case Place::metadata:
        MANTISSA_CHECK(!header_.metadata.contains(name), Corruption, where_, ": key \"", name,
                       "\" is there twice; ", advice());
        metadata_key_ = name;
        break;
      default:
        require_new(keys_, name);
        MANTISSA_CHECK(name == "dtype" || name == "shape" || name == "data_offsets", Corruption,
                       where_, ": tensor \"", entry_.name, "\" has an unknown key \"", name, "\"; ",
                       advice());
        field_ = name;
    }
    return true;
  }

  bool start_object(size_t) override {
    switch (place_) {
      case Place::outside:
        place_ = Place::file;
        return true;
      case Place::file:
        place_ = entry_.name == kMetadata ? Place::metadata : Place::tensor;
        return true;
      default:
        return unexpected("an object");
    }
  }

  bool end_object() override {
    if (place_ == Place::tensor) {
      MANTISSA_CHECK(keys_.size() == 3, Corruption, where_, ": tensor \"", entry_.name,
                     "\" needs dtype, shape and data_offsets; ", advice());
      header_.entries.push_back(std::move(entry_));
    }
    place_ = place_ == Place::file ? Place::outside : Place::file;
    return true;
  }

  bool start_array(size_t) override {
    if (place_ != Place::tensor || field_ == "dtype") {
      return unexpected("an array");
    }
    numbers_.clear();
    place_ = Place::array;
    return true;
  }

  bool end_array() override {
    if (field_ == "shape") {
      entry_.shape = numbers_;
    } else {
      MANTISSA_CHECK(numbers_.size() == 2, Corruption, where_, ": tensor \"", entry_.name,
                     "\" has ", numbers_.size(), " data_offsets, not 2; ", advice());
      entry_.begin = numbers_[0];
      entry_.end = numbers_[1];
    }
    place_ = Place::tensor;
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::array) {
      return unexpected("a number");
    }
    MANTISSA_CHECK(value <= uint64_t{std::numeric_limits<int64_t>::max()}, Corruption, where_,
                   ": tensor \"", entry_.name, "\" has ", value, " in its ", field_,
                   ", which no file can hold; ", advice());
    MANTISSA_CHECK(numbers_.size() < kMaxDimensions, Corruption, where_, ": tensor \"", entry_.name,
                   "\" has more than ", kMaxDimensions, " numbers in its ", field_, "; ", advice());
    numbers_.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::metadata) {
      header_.metadata[metadata_key_] = value;
      return true;
    }
    if (place_ != Place::tensor || field_ != "dtype") {
      return unexpected("a text");
    }
    for (const auto& [name, dtype] : kDtypes) {
      if (value == name) {
        entry_.dtype = dtype;
        return true;
      }
    }
    throw Corruption(concat(where_, ": tensor \"", entry_.name, "\" has unknown dtype \"", value,
                            "\"; valid: ", valid_dtypes()));
  }

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("true or false"); }
  bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return unexpected("a fraction"); }
  bool binary(binary_t&) override { return unexpected("bytes"); }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    throw Corruption(
        concat(where_, ": the header is not JSON in UTF-8 at byte ", position, "; ", advice()));
  }

 private:
  enum class Place { outside, file, metadata, tensor, array };

  static const char* advice() { return "the file is damaged, use another copy"; }

  void require_new(std::set<std::string>& names, const std::string& name) const {
    MANTISSA_CHECK(names.insert(name).second, Corruption, where_, ": key \"", name,
                   "\" is there twice; ", advice());
  }

  [[noreturn]] bool unexpected(const char* what) const {
    throw Corruption(concat(where_, ": the header has ", what, " where the format has none",
                            entry_.name.empty() ? "" : ", at \"" + entry_.name + "\"", "; ",
                            advice()));
  }

  const std::string& where_;
  Place place_ = Place::outside;
  SafetensorsHeader header_;
  SafetensorsEntry entry_;
  std::set<std::string> names_;  // of tensors
  std::set<std::string> keys_;   // of the present tensor
  std::string field_;            // of these, the last
  std::string metadata_key_;
  std::vector<int64_t> numbers_;
};

// Of a tensor; nothing when it does not fit into 63 bits. A zero in the shape is taken for one, so
// that strides of empty tensors, which LibTorch computes in the same way, cannot overflow either.
std::optional<int64_t> size_bytes(const SafetensorsEntry& entry) {
  auto size = static_cast<int64_t>(c10::elementSize(entry.dtype));
  bool is_empty = false;
  for (const int64_t length : entry.shape) {
    is_empty = is_empty || length == 0;
    if (__builtin_mul_overflow(size, std::max<int64_t>(length, 1), &size)) {
      return std::nullopt;
    }
  }
  return is_empty ? 0 : size;
}

void check_layout(const std::vector<SafetensorsEntry>& entries, int64_t data_size,
                  const std::string& where) {
  constexpr const char* kAdvice = "; the file is damaged, use another copy";
  int64_t position = 0;
  for (const SafetensorsEntry& entry : entries) {
    MANTISSA_CHECK(entry.begin == position && entry.end >= entry.begin && entry.end <= data_size,
                   Corruption, where, ": tensor \"", entry.name, "\" has bytes ", entry.begin,
                   " to ", entry.end, " where ", position, " to at most ", data_size, " were due",
                   kAdvice);
    const std::optional<int64_t> size = size_bytes(entry);
    MANTISSA_CHECK(size == entry.end - entry.begin, Corruption, where, ": tensor \"", entry.name,
                   "\" has ", entry.end - entry.begin, " bytes, its shape and dtype want ",
                   size ? std::to_string(*size) : "more than a file can hold", kAdvice);
    position = entry.end;
  }
  MANTISSA_CHECK(position == data_size, Corruption, where, ": the tensors end at byte ", position,
                 " of ", data_size, kAdvice);
}

}  // namespace

std::string safetensors_dtype(at::ScalarType dtype, const std::string& where) {
  for (const auto& [name, candidate] : kDtypes) {
    if (candidate == dtype) {
      return name;
    }
  }
  throw InvalidArgument(concat(where, " is ", c10::toString(dtype), "; valid: ", valid_dtypes()));
}

std::string format_safetensors_header(const SafetensorsHeader& header, const std::string& where) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!header.metadata.empty()) {
    json[kMetadata] = header.metadata;
  }
  for (const SafetensorsEntry& entry : header.entries) {
    MANTISSA_CHECK(entry.name != kMetadata, InvalidArgument, where, ": a tensor is called \"",
                   kMetadata, "\", which the format keeps for itself; choose another name");
    json[entry.name] = {{"dtype", safetensors_dtype(entry.dtype, where)},
                        {"shape", entry.shape},
                        {"data_offsets", {entry.begin, entry.end}}};
  }
  std::string text;
  try {
    text = json.dump();
  } catch (const nlohmann::json::exception&) {
    throw InvalidArgument(concat(where, ": a name or metadata is not UTF-8; use UTF-8 text"));
  }
  text.append((8 - text.size() % 8) % 8, ' ');
  MANTISSA_CHECK(static_cast<int64_t>(text.size()) <= kMaxSafetensorsHeader, InvalidArgument, where,
                 ": the header has ", text.size(), " bytes, at most ", kMaxSafetensorsHeader,
                 " are read; use fewer or shorter names");
  return text;
}

SafetensorsHeader parse_safetensors_header(std::string_view text, int64_t data_size,
                                           const std::string& where) {
  MANTISSA_CHECK(text.starts_with('{'), Corruption, where,
                 ": the header does not begin with {; it is not a safetensors file, or damaged");
  HeaderReader reader(where);
  nlohmann::json::sax_parse(text, &reader);
  SafetensorsHeader header = reader.take();
  std::sort(header.entries.begin(), header.entries.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
            });
  check_layout(header.entries, data_size, where);
  return header;
}

}  // namespace mantissa::tensor
