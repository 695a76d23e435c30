#include "mantissa/record/event.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>

#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/base/json_number.h"
#include "mantissa/base/nonfinite.h"

namespace mantissa::record {
namespace {

using nlohmann::ordered_json;

constexpr const char* kAdvice =
    "; the record is damaged: move it away, and a resume goes on without its history";

// Calls `visit(key, field)` for each field, in the order of the file. This one list is what both
// writing and reading follow.
template <typename Self, typename Visit>
void each_field(Self& self, Visit visit) {
  using Type = std::remove_const_t<Self>;
  if constexpr (std::is_same_v<Type, RunStart>) {
    visit("config", self.config);
    visit("versions", self.versions);
    visit("cpu", self.cpu);
    visit("resumed_from", self.resumed_from);
  } else if constexpr (std::is_same_v<Type, Step>) {
    visit("step", self.step);
    visit("loss", self.loss);
    visit("bits_per_base", self.bits_per_base);
    visit("lr", self.lr);
    visit("grad_norm", self.grad_norm);
    visit("scale", self.scale);
    visit("skipped", self.skipped);
    visit("tokens_per_s", self.tokens_per_s);
    visit("step_time_s", self.step_time_s);
    visit("data_wait_s", self.data_wait_s);
    visit("peak_bytes", self.peak_bytes);
    visit("gradients", self.gradients);
    visit("phases", self.phases);
  } else if constexpr (std::is_same_v<Type, Evaluation>) {
    visit("step", self.step);
    visit("bits_per_base", self.bits_per_base);
    visit("loss", self.loss);
    visit("duration_s", self.duration_s);
  } else if constexpr (std::is_same_v<Type, CheckpointSaved>) {
    visit("step", self.step);
    visit("path", self.path);
    visit("size_bytes", self.size_bytes);
    visit("write_time_s", self.write_time_s);
    visit("peak_bytes", self.peak_bytes);
    visit("peak_holders", self.peak_holders);
  } else if constexpr (std::is_same_v<Type, Message>) {
    visit("step", self.step);
    visit("level", self.level);
    visit("text", self.text);
  } else if constexpr (std::is_same_v<Type, Summary>) {
    visit("steps", self.steps);
    visit("bits_per_base", self.bits_per_base);
    visit("loss", self.loss);
    visit("markov_bits_per_base", self.markov_bits_per_base);
    visit("step_time_s", self.step_time_s);
    visit("tokens_per_s", self.tokens_per_s);
    visit("peak_bytes", self.peak_bytes);
    visit("peak_holders", self.peak_holders);
    visit("bytes_per_param", self.bytes_per_param);
    visit("scale", self.scale);
    visit("skipped_steps", self.skipped_steps);
    visit("params", self.params);
    visit("seed", self.seed);
    visit("precision", self.precision);
    visit("policy", self.policy);
    visit("allocator", self.allocator);
    visit("stopped_by", self.stopped_by);
  } else if constexpr (std::is_same_v<Type, ValueRange>) {
    visit("kind", self.kind);
    visit("scope", self.scope);
    visit("name", self.name);
    visit("format", self.format);
    visit("count", self.count);
    visit("zeros", self.zeros);
    visit("nan", self.nan);
    visit("positive_infinity", self.positive_infinity);
    visit("negative_infinity", self.negative_infinity);
    visit("smallest", self.smallest);
    visit("largest", self.largest);
    visit("first_exponent", self.first_exponent);
    visit("exponents", self.exponents);
    visit("narrow", self.narrow);
  } else if constexpr (std::is_same_v<Type, Ranges>) {
    visit("step", self.step);
    visit("scale", self.scale);
    visit("values", self.values);
  } else if constexpr (std::is_same_v<Type, OperationRow>) {
    visit("phase", self.phase);
    visit("scope", self.scope);
    visit("operation", self.operation);
    visit("kind", self.kind);
    visit("format", self.format);
    visit("calls", self.calls);
    visit("time_s", self.time_s);
    visit("flops", self.flops);
    visit("bytes", self.bytes);
    visit("eligible", self.eligible);
    visit("in_16_bits", self.in_16_bits);
    visit("reason", self.reason);
    visit("detail", self.detail);
  } else if constexpr (std::is_same_v<Type, TimeSplit>) {
    visit("step", self.step);
    visit("step_time_s", self.step_time_s);
    visit("look_s", self.look_s);
    visit("phases", self.phases);
    visit("operations", self.operations);
  } else {
    static_assert(std::is_same_v<Type, RunEnd>);
    visit("summary", self.summary);
  }
}

// Keys that earlier records lack, or that stay away where there is nothing to say.
constexpr std::string_view kLaterKeys[] = {"bytes_per_param", "peak_holders", "allocator",
                                           "gradients", "phases"};

template <typename Type>
bool is_later(std::string_view key) {
  return std::ranges::count(kLaterKeys, key) > 0 ||
         (std::is_same_v<Type, CheckpointSaved> && key == "peak_bytes") ||
         (std::is_same_v<Type, Evaluation> && key == "duration_s");
}

constexpr int64_t kMostDepth = 32;  // of objects in one another; the parser's stack has an end

int64_t depth_of(std::string_view line) {
  int64_t depth = 0;
  int64_t most = 0;
  bool in_text = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char letter = line[i];
    if (in_text && letter == '\\') {
      ++i;
    } else if (letter == '"') {
      in_text = !in_text;
    } else if (!in_text) {
      depth += letter == '{' || letter == '[' ? 1 : letter == '}' || letter == ']' ? -1 : 0;
      most = std::max(most, depth);
    }
  }
  return most;
}

// By position in Event.
constexpr const char* kTypes[] = {"run_start", "step",    "evaluation", "checkpoint_saved",
                                  "message",   "run_end", "ranges",     "time_split"};
static_assert(std::size(kTypes) == std::variant_size_v<Event>);

ordered_json json_of(double value) { return json_number(value); }

ordered_json json_of(Level level) { return level == Level::info ? "info" : "warning"; }

ordered_json json_of(const ParameterNumbers& numbers) {
  ordered_json result;
  for (const auto& [parameter, values] : numbers) {
    for (const auto& [name, value] : values) {
      result[parameter][name] = json_of(value);
    }
  }
  return result;
}

template <typename Value>
constexpr bool kIsObject = std::is_same_v<Value, Summary> || std::is_same_v<Value, ValueRange> ||
                           std::is_same_v<Value, OperationRow>;

template <typename Value>
requires kIsObject<Value> ordered_json json_of(const std::vector<Value>& values);

template <typename Value>
ordered_json json_of(const Value& value) {
  if constexpr (kIsObject<Value>) {
    ordered_json result;
    each_field(value, [&](const char* key, const auto& field) { result[key] = json_of(field); });
    return result;
  } else {
    return value;
  }
}

template <typename Value>
requires kIsObject<Value> ordered_json json_of(const std::vector<Value>& values) {
  ordered_json result = ordered_json::array();
  for (const Value& value : values) {
    result.push_back(json_of(value));
  }
  return result;
}

template <typename Value>
bool is_left_out(const Value& value) {
  if constexpr (std::is_same_v<Value, ParameterNumbers> ||
                std::is_same_v<Value, std::map<std::string, int64_t>> ||
                std::is_same_v<Value, std::map<std::string, double>>) {
    return value.empty();
  }
  return false;
}

std::string dump(const ordered_json& json) {
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

bool is_int64(const ordered_json& value) {
  return value.is_number_integer() &&
         (!value.is_number_unsigned() ||
          value.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()});
}

// Reads the fields of one line; every complaint begins with `where`.
class LineReader {
 public:
  LineReader(const ordered_json& json, const std::string& where) : json_(json), where_(where) {}

  template <typename Type>
  Type read() const {
    Type result;
    each_field(result, [this](const char* key, auto& field) {
      if (json_.contains(key) || !is_later<Type>(key)) {
        this->get(key, field);
      }
    });
    return result;
  }

  void get(const char* key, int64_t& field) const {
    require(is_int64(at(key)), key, "an integer of 64 bits");
    field = at(key).get<int64_t>();
  }

  void get(const char* key, double& field) const {
    const ordered_json& value = at(key);
    const auto nonfinite =
        value.is_string() ? nonfinite_value(value.get_ref<const std::string&>()) : std::nullopt;
    require(value.is_number() || nonfinite, key, "a number");
    field = nonfinite ? *nonfinite : value.get<double>();
  }

  void get(const char* key, bool& field) const {
    require(at(key).is_boolean(), key, "true or false");
    field = at(key).get<bool>();
  }

  void get(const char* key, std::string& field) const {
    require(at(key).is_string(), key, "a text");
    field = at(key).get<std::string>();
  }

  void get(const char* key, Level& field) const {
    require(at(key) == "info" || at(key) == "warning", key, "\"info\" or \"warning\"");
    field = at(key) == "info" ? Level::info : Level::warning;
  }

  template <typename Value>
  void get(const char* key, std::map<std::string, Value>& field) const {
    require(at(key).is_object(), key, "an object");
    const LineReader inner(at(key), where_);
    for (const auto& [name, value] : at(key).items()) {
      inner.get(name.c_str(), field[name]);
    }
  }

  void get(const char* key, std::vector<int64_t>& field) const {
    require(at(key).is_array(), key, "an array");
    field.reserve(at(key).size());
    for (const ordered_json& element : at(key)) {
      require(is_int64(element), key, "an array of integers of 64 bits");
      field.push_back(element.get<int64_t>());
    }
  }

  template <typename Value>
  requires kIsObject<Value>
  void get(const char* key, std::vector<Value>& field) const {
    require(at(key).is_array(), key, "an array");
    field.reserve(at(key).size());
    for (const ordered_json& element : at(key)) {
      require(element.is_object(), key, "an array of objects");
      field.push_back(LineReader(element, where_).read<Value>());
    }
  }

  void get(const char* key, Summary& field) const {
    require(at(key).is_object(), key, "an object");
    field = LineReader(at(key), where_).read<Summary>();
  }

 private:
  const ordered_json& at(const char* key) const {
    const auto found = json_.find(key);
    MANTISSA_CHECK(found != json_.end(), Corruption, where_, ": key \"", key, "\" is missing",
                   kAdvice);
    return *found;
  }

  void require(bool holds, const char* key, const char* what) const {
    MANTISSA_CHECK(holds, Corruption, where_, ": \"", key, "\" is ", dump(at(key)), ", not ", what,
                   kAdvice);
  }

  const ordered_json& json_;
  const std::string& where_;
};

template <size_t index = 0>
Event read_event(const std::string& type, const LineReader& reader, const std::string& where) {
  if constexpr (index == std::variant_size_v<Event>) {
    throw Corruption(concat(where, ": unknown type \"", type, "\" of event", kAdvice));
  } else if (type == kTypes[index]) {
    return reader.read<std::variant_alternative_t<index, Event>>();
  } else {
    return read_event<index + 1>(type, reader, where);
  }
}

}  // namespace

std::string to_json(const Entry& entry) {
  ordered_json line;
  line["schema"] = kSchema;
  line["time_s"] = json_of(entry.time_s);
  line["type"] = kTypes[entry.event.index()];
  std::visit(
      [&](const auto& event) {
        each_field(event, [&](const char* key, const auto& field) {
          if (!is_left_out(field)) {
            line[key] = json_of(field);
          }
        });
      },
      entry.event);
  return dump(line);
}

std::string to_json(const Summary& summary) { return dump(json_of(summary)); }

Entry from_json(std::string_view line, const std::string& where) {
  MANTISSA_CHECK(depth_of(line) <= kMostDepth, Corruption, where, ": nested deeper than any record",
                 kAdvice);
  ordered_json json;
  try {
    json = ordered_json::parse(line);
  } catch (const nlohmann::json::exception&) {
    throw Corruption(concat(where, ": not a line of JSON", kAdvice));
  }
  MANTISSA_CHECK(json.is_object(), Corruption, where, ": not an object of JSON", kAdvice);
  const LineReader reader(json, where);
  int64_t schema = 0;
  reader.get("schema", schema);
  MANTISSA_CHECK(schema <= kSchema, Unsupported, where, ": of schema ", schema,
                 ", this mantissa reads up to ", kSchema, "; use a later mantissa");
  Entry entry;
  reader.get("time_s", entry.time_s);
  std::string type;
  reader.get("type", type);
  entry.event = read_event(type, reader, where);
  return entry;
}

int64_t step_of(const Event& event) {
  return std::visit(
      [](const auto& value) -> int64_t {
        using Type = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<Type, RunStart> || std::is_same_v<Type, RunEnd>) {
          return -1;
        } else {
          return value.step;
        }
      },
      event);
}

}  // namespace mantissa::record
