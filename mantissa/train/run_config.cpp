#include "mantissa/train/run_config.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <fstream>
#include <initializer_list>
#include <limits>
#include <map>
#include <sstream>
#include <string_view>
#include <utility>

#define TOML_EXCEPTIONS 1
#include <toml++/toml.h>

#include "mantissa/amp/policy.h"
#include "mantissa/base/error.h"
#include "mantissa/base/nearest.h"
#include "mantissa/base/toml_advice.h"
#include "mantissa/numerics/format.h"
#include "mantissa/tensor/dtype.h"
#include "mantissa/train/make_model.h"
#include "mantissa/train/run_config_keys.h"

namespace mantissa::train {
namespace {

namespace fs = std::filesystem;

template <typename... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};
template <typename... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

std::string text_of(const toml::node& node) {
  std::ostringstream out;
  node.visit([&](const auto& value) { out << value; });
  return out.str();
}

const Key& find_key(const std::string& name, const std::string& where) {
  std::vector<std::string> names;
  for (const Key& key : run_config_keys()) {
    if (key.name == name) {
      return key;
    }
    names.push_back(key.name);
  }
  throw InvalidArgument(concat(where, ": unknown key \"", name, "\"", suggestion(name, names),
                               " (all: mantissa train --help-keys)"));
}

// The shortest decimal that reads back to the same double; whole numbers without a point.
std::string number_text(double value) {
  std::array<char, 32> buffer{};
  const bool is_whole = value == std::floor(value) && std::fabs(value) < 1e16;
  const auto format = is_whole ? std::chars_format::fixed : std::chars_format::general;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, format).ptr;
  return {buffer.data(), end};
}

bool is_integer(const Key& key) {
  RunConfig any;
  return std::holds_alternative<int64_t*>(key.field(any));
}

std::string range_text(const Key& key) {
  std::string text = key.minimum == kAboveZero  ? "more than 0"
                     : key.minimum == kAboveOne ? "more than 1"
                                                : "at least " + number_text(key.minimum);
  if (key.maximum == kBelowOne) {
    return text + " and less than 1";
  }
  const bool is_any_integer = is_integer(key) && key.maximum == kUnbounded;
  return text + ", at most " +
         (is_any_integer ? std::to_string(std::numeric_limits<int64_t>::max())
                         : number_text(key.maximum));
}

// A decimal number that toml++ refuses because 64 bits do not hold it.
bool is_beyond_64_bits(std::string text) {
  std::erase(text, '_');
  const auto is_beyond = [&](auto value) {
    const char* const end = text.data() + text.size();
    const auto result = std::from_chars(text.data() + (text.starts_with('+') ? 1 : 0), end, value);
    return result.ptr == end && result.ec == std::errc::result_out_of_range;
  };
  return is_beyond(int64_t{0}) || is_beyond(0.0);
}

void check_range(const Key& key, double value, const std::string& where, const std::string& shown) {
  MANTISSA_CHECK(value >= key.minimum && value <= key.maximum, InvalidArgument, where, ": ",
                 key.name, " is ", shown, "; valid: ", range_text(key));
}

void assign(const Key& key, const toml::node& node, RunConfig& config, const std::string& where) {
  const std::string shown = text_of(node);
  const auto expect = [&](bool holds, const char* type) {
    MANTISSA_CHECK(holds, InvalidArgument, where, ": ", key.name, " is ", shown, "; expected ",
                   type);
  };
  std::visit(Overloaded{[&](int64_t* target) {
                          const auto* word = node.as_string();
                          if (can_be_auto(key) && word != nullptr && word->get() == kAuto) {
                            *target = kAutoMicrobatch;
                            return;
                          }
                          expect(node.is_integer(),
                                 can_be_auto(key) ? "an integer or \"auto\"" : "an integer");
                          *target = node.as_integer()->get();
                          check_range(key, static_cast<double>(*target), where, shown);
                        },
                        [&](double* target) {
                          expect(node.is_number(), "a number");
                          *target = node.is_integer()
                                        ? static_cast<double>(node.as_integer()->get())
                                        : node.as_floating_point()->get();
                          expect(std::isfinite(*target), "a finite number");
                          check_range(key, *target, where, shown);
                        },
                        [&](bool* target) {
                          expect(node.is_boolean(), "true or false");
                          *target = node.as_boolean()->get();
                        },
                        [&](std::string* target) {
                          expect(node.is_string(), "a text");
                          *target = node.as_string()->get();
                          const bool valid = key.choices.empty() ||
                                             std::find(key.choices.begin(), key.choices.end(),
                                                       *target) != key.choices.end();
                          MANTISSA_CHECK(valid, InvalidArgument, where, ": ", key.name, " is ",
                                         shown, suggestion(*target, key.choices));
                        },
                        [&](std::vector<std::string>* target) {
                          expect(node.is_array(), "a list of texts");
                          target->clear();
                          for (const toml::node& entry : *node.as_array()) {
                            expect(entry.is_string(), "a list of texts");
                            target->push_back(entry.as_string()->get());
                          }
                        }},
             key.field(config));
}

// A number that TOML refuses comes as a text.
void require_representable(const Key& key, const Setting& setting, const toml::node& value,
                           const std::string& where) {
  RunConfig any;
  const Field field = key.field(any);
  const bool is_number =
      std::holds_alternative<int64_t*>(field) || std::holds_alternative<double*>(field);
  MANTISSA_CHECK(!is_number || !value.is_string() || !is_beyond_64_bits(setting.value),
                 InvalidArgument, where, ": ", key.name, " is ", setting.value,
                 ", which 64 bits do not hold; valid: ", range_text(key));
}

// Texts that name files become absolute against the folder they were written in.
void resolve_paths(const Key& key, RunConfig& config, const fs::path& folder) {
  const auto resolve = [&](std::string& path) {
    if (!path.empty()) {
      path = fs::absolute(folder / path).lexically_normal().string();
    }
  };
  if (key.name == "data.fasta") {
    resolve(config.data.fasta);
  } else if (key.name == "precision.policy" && config.precision.policy.ends_with(".toml")) {
    resolve(config.precision.policy);
  }
}

toml::table parse_file(const fs::path& file) {
  MANTISSA_CHECK(fs::exists(file), IoError, file.string(),
                 ": no such run file; see recipes/ for examples");
  MANTISSA_CHECK(!fs::is_directory(file), IoError, file.string(),
                 ": is a folder; name a run file (.toml) in it");
  MANTISSA_CHECK(fs::is_regular_file(file), IoError, file.string(),
                 ": is a pipe or a device; name a run file (.toml)");
  try {
    return toml::parse_file(file.string());
  } catch (const toml::parse_error& error) {
    throw InvalidArgument(concat(file.string(), ":", error.source().begin.line, ": ",
                                 error.description(), "; ",
                                 toml_advice(error.description(), "a run file is TOML")));
  }
}

toml::table parse_value(const Setting& setting) {
  try {
    return toml::parse("value = " + setting.value);
  } catch (const toml::parse_error&) {
    // A bare word is a text: --set optim.kind=sgd.
    return toml::table{{"value", setting.value}};
  }
}

// Is there a word `setting` with a `=` after it? In the text of a policy and in its file alike.
bool assigns(const std::string& source, const std::string& setting) {
  for (size_t at = source.find(setting); at != std::string::npos;
       at = source.find(setting, at + 1)) {
    const size_t next = source.find_first_not_of(" \t", at + setting.size());
    const bool is_word = at == 0 || std::isspace(static_cast<unsigned char>(source[at - 1])) != 0;
    if (is_word && next != std::string::npos && source[next] == '=') {
      return true;
    }
  }
  return false;
}

// A run file with settings over it, before its keys are looked at together.
struct Draft {
  RunConfig config;
  std::map<std::string, std::string> in_file;   // key: where
  std::map<std::string, std::string> settings;  // likewise

  // Where the key was given; `otherwise` when nowhere.
  std::string origin(const std::string& key, const std::string& otherwise) const {
    const auto setting = settings.find(key);
    const auto line = in_file.find(key);
    return setting != settings.end() ? setting->second
           : line != in_file.end()   ? line->second
                                     : otherwise;
  }
};

// `file` names the run file, for what is given nowhere.
void check_together(const Draft& draft, const std::string& file) {
  const RunConfig& c = draft.config;
  // The first of the keys that was given on the command line, or else in the file.
  const auto where = [&](std::initializer_list<const char*> keys) {
    for (const auto* origins : {&draft.settings, &draft.in_file}) {
      for (const char* key : keys) {
        if (const auto found = origins->find(key); found != origins->end()) {
          return found->second;
        }
      }
    }
    return file;
  };
  MANTISSA_CHECK(c.train.memory.empty() || parse_bytes(c.train.memory), InvalidArgument,
                 where({"train.memory"}), ": train.memory is \"", c.train.memory,
                 "\"; valid: a number and B, kB, MB, GB, TB, KiB, MiB or GiB, such as 2GB");
  MANTISSA_CHECK(!c.data.fasta.empty(), InvalidArgument, file,
                 ": data.fasta is missing; name the genome to train on");
  MANTISSA_CHECK(c.train.batch % c.microbatch() == 0, InvalidArgument,
                 where({"train.microbatch", "train.batch"}), ": train.batch ", c.train.batch,
                 " is not a multiple of train.microbatch ", c.microbatch(),
                 "; choose one that divides it");
  const bool is_transformer = c.model.kind == "transformer";
  MANTISSA_CHECK(!is_transformer || c.model.width % (2 * c.model.heads) == 0, InvalidArgument,
                 where({"model.width", "model.heads"}), ": model.width ", c.model.width,
                 " with model.heads ", c.model.heads,
                 "; the width must be a multiple of twice the heads");
  const int64_t positions = is_transformer ? c.data.context : model_positions(c);
  MANTISSA_CHECK(c.data.context <= positions, InvalidArgument,
                 where({"data.context", "model.positions", "model.size"}), ": data.context ",
                 c.data.context, " is above the ", positions,
                 " positions of the model's filters; choose a shorter context or more positions");
  MANTISSA_CHECK(
      c.model.reverse_complement == "none" || c.data.objective == "masked", InvalidArgument,
      where({"model.reverse_complement", "data.objective"}), ": model.reverse_complement is \"",
      c.model.reverse_complement, "\" with data.objective ", c.data.objective,
      ": the other strand would show what is to be predicted; use data.objective masked");
  MANTISSA_CHECK(c.optim.schedule != "cosine" || c.optim.warmup < c.train.steps, InvalidArgument,
                 where({"optim.warmup", "train.steps"}), ": optim.warmup ", c.optim.warmup,
                 " is not below train.steps ", c.train.steps, "; shorten the warm-up");
  MANTISSA_CHECK(c.scale_kind() != "dynamic" || c.scale.floor <= c.scale.initial, InvalidArgument,
                 where({"scale.floor", "scale.initial"}), ": scale.floor ", c.scale.floor,
                 " is above scale.initial ", c.scale.initial, "; start at or above the floor");
  MANTISSA_CHECK(
      c.scale_kind() != "dynamic" || c.scale.ceiling == 0 || c.scale.ceiling >= c.scale.initial,
      InvalidArgument, where({"scale.ceiling", "scale.initial"}), ": scale.ceiling ",
      c.scale.ceiling, " is below scale.initial ", c.scale.initial,
      "; start at or below the ceiling");
  MANTISSA_CHECK(c.optim.schedule != "cosine" || c.optim.min_lr <= c.optim.lr, InvalidArgument,
                 where({"optim.min_lr", "optim.lr"}), ": optim.min_lr ", c.optim.min_lr,
                 " is above optim.lr ", c.optim.lr, "; it is where the cosine ends");
}

// A policy that is refused says where it was given.
amp::Policy find_policy(const std::string& given, const std::string& origin) {
  try {
    return amp::find_policy(given);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(concat(origin, ": precision.policy: ", error.what()));
  } catch (const IoError& error) {
    throw IoError(concat(origin, ": precision.policy: ", error.what()));
  }
}

// Makes the policy one line of text, so that the run does not depend on a file that may change, and
// says in precision.param what it says of parameters.
void resolve_policy(Draft& draft, const std::string& where) {
  RunConfig& config = draft.config;
  const std::string given = config.precision.policy;
  amp::Policy policy = find_policy(given, draft.origin("precision.policy", where));
  std::string source = given;
  if (given.ends_with(".toml")) {
    std::ifstream file(given);
    source.assign(std::istreambuf_iterator<char>(file), {});
  }
  const auto require_equal = [&](const char* setting, std::string_view own,
                                 const std::string& run) {
    const bool is_named = assigns(source, setting);
    MANTISSA_CHECK(!is_named || own == run, InvalidArgument, where, ": the policy says ", setting,
                   "=", own, ", precision.", setting, " is ", run,
                   "; leave one of them out or make them equal");
  };
  require_equal("compute", numerics::to_string(policy.compute), config.precision.compute);
  policy.compute = numerics::parse_format(config.precision.compute);
  const bool lowers = tensor::is_16bit(tensor::dtype_of(policy.compute));
  if (config.precision.param != "auto") {
    require_equal("param", numerics::to_string(policy.param), config.precision.param);
    policy.param = numerics::parse_format(config.precision.param);
  } else if (policy.param != numerics::Format::fp32 && !assigns(source, "param")) {
    policy.param = lowers ? policy.compute : numerics::Format::fp32;  // a base for another format
  }
  MANTISSA_CHECK(policy.param == numerics::Format::fp32 || policy.param == policy.compute,
                 InvalidArgument, where, ": parameters of ", numerics::to_string(policy.param),
                 " with precision.compute ", config.precision.compute,
                 "; parameters are fp32 or of the compute format");
  const std::string text = amp::to_string(policy);
  config.precision.policy =
      text == concat(policy.base, " compute=", config.precision.compute) ? policy.base : text;
  config.precision.param = numerics::to_string(policy.param);
}

void apply(const Setting& setting, Draft& draft) {
  const std::string where = "--set " + setting.key + "=" + setting.value;
  const Key& key = find_key(setting.key, where);
  MANTISSA_CHECK(draft.settings.emplace(key.name, where).second, InvalidArgument, where, ": ",
                 key.name, " is set twice on the command line; set it once");
  const toml::table parsed = parse_value(setting);
  require_representable(key, setting, *parsed.get("value"), where);
  assign(key, *parsed.get("value"), draft.config, where);
  resolve_paths(key, draft.config, fs::current_path());
}

Draft read_draft(const fs::path& file) {
  const toml::table table = parse_file(file);
  Draft draft;
  for (const auto& [section, node] : table) {
    const auto line = [&](const toml::node& at) {
      return concat(file.string(), ":", at.source().begin.line);
    };
    MANTISSA_CHECK(node.is_table(), InvalidArgument, line(node), ": \"", section.str(),
                   "\" stands outside of a section; valid sections: data model train optim "
                   "precision scale");
    for (const auto& [name, value] : *node.as_table()) {
      const Key& key = find_key(concat(section.str(), ".", name.str()), line(value));
      assign(key, value, draft.config, line(value));
      resolve_paths(key, draft.config, file.parent_path());
      draft.in_file.emplace(key.name, line(value));
    }
  }
  return draft;
}

bool is_empty_text(const Key& key, RunConfig config) {
  const Field field = key.field(config);
  const auto* text = std::get_if<std::string*>(&field);
  return text != nullptr && (*text)->empty();
}

// A key that was given counts in one of the runs. A setting may take that from a key of the file,
// which counted without the settings: --set optim.schedule=constant from optim.warmup. But a limit
// that nobody keeps is to be taken away by who sets it aside: --set train.memory=.
void check_effect(const Draft& file, const Draft& draft, const std::vector<RunConfig>& runs,
                  const std::string& name) {
  for (const Key& key : run_config_keys()) {
    const bool counts =
        key.has_effect == nullptr || std::any_of(runs.begin(), runs.end(), key.has_effect);
    const auto setting = draft.settings.find(key.name);
    const auto line = draft.in_file.find(key.name);
    const bool is_set = setting != draft.settings.end();
    if (counts || (!is_set && line == draft.in_file.end()) || is_empty_text(key, draft.config)) {
      continue;
    }
    if (!is_set && !key.is_limit) {
      Draft alone = file;
      resolve_policy(alone, name);
      if (key.has_effect(alone.config)) {
        continue;
      }
    }
    throw InvalidArgument(concat(is_set ? setting->second : line->second, ": ", key.name,
                                 " has no effect here; remove it, it counts when ", key.effect));
  }
}

// Keys that count nothing as if they were not given, as they are in the run's own file.
RunConfig without_idle_keys(RunConfig run) {
  RunConfig defaults;
  const RunConfig given = run;
  for (const Key& key : run_config_keys()) {
    if (key.has_effect != nullptr && !key.has_effect(given)) {
      std::visit([&](auto* to) { *to = *std::get<decltype(to)>(key.field(defaults)); },
                 key.field(run));
    }
  }
  return run;
}

// One run for each alternative, which comes on top of the settings.
std::vector<RunConfig> load(const fs::path& file, const std::vector<Setting>& settings,
                            const std::vector<std::vector<Setting>>& alternatives) {
  const Draft in_file = read_draft(file);
  Draft draft = in_file;
  for (const Setting& setting : settings) {
    apply(setting, draft);
  }
  std::vector<RunConfig> runs;
  for (const std::vector<Setting>& alternative : alternatives) {
    Draft run = draft;
    for (const Setting& setting : alternative) {
      apply(setting, run);
    }
    resolve_policy(run, file.string());
    check_together(run, file.string());
    runs.push_back(without_idle_keys(std::move(run.config)));
  }
  check_effect(in_file, draft, runs, file.string());
  return runs;
}

std::string quoted(const std::string& text) {
  std::ostringstream out;
  out << toml::value<std::string>(text);
  return out.str();
}

std::string value_text(const Key& key, RunConfig& config) {
  return std::visit(
      Overloaded{[&](const int64_t* value) {
                   return can_be_auto(key) && *value == kAutoMicrobatch ? quoted(kAuto)
                                                                        : std::to_string(*value);
                 },
                 [](const double* value) {
                   const std::string text = number_text(*value);
                   // TOML tells numbers with a point from integers.
                   return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
                 },
                 [](const bool* value) -> std::string { return *value ? "true" : "false"; },
                 [](const std::string* value) { return quoted(*value); },
                 [](const std::vector<std::string>* list) {
                   std::string text = "[";
                   for (const std::string& entry : *list) {
                     text += (text.size() > 1 ? ", " : "") + quoted(entry);
                   }
                   return text + "]";
                 }},
      key.field(config));
}

}  // namespace

std::string RunConfig::scale_kind() const {
  if (scale.kind != "auto") {
    return scale.kind;
  }
  return precision.compute == "fp16" ? "dynamic" : "none";
}

std::optional<int64_t> parse_bytes(const std::string& text) {
  constexpr std::array<std::pair<std::string_view, double>, 8> kUnits = {{{"B", 1},
                                                                          {"kB", 1e3},
                                                                          {"MB", 1e6},
                                                                          {"GB", 1e9},
                                                                          {"KiB", 0x1p10},
                                                                          {"MiB", 0x1p20},
                                                                          {"GiB", 0x1p30},
                                                                          {"TB", 1e12}}};
  double number = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), number).ptr;
  std::string_view unit(end, text.data() + text.size() - end);
  unit.remove_prefix(std::min(unit.find_first_not_of(' '), unit.size()));
  for (const auto& [name, factor] : kUnits) {
    if (unit == name && number * factor >= 1 && number * factor < 0x1p62) {
      return static_cast<int64_t>(number * factor);
    }
  }
  return std::nullopt;
}

std::optional<int64_t> RunConfig::memory_bytes() const { return parse_bytes(train.memory); }

Setting parse_setting(const std::string& text) {
  const size_t equals = text.find('=');
  MANTISSA_CHECK(equals != std::string::npos && equals > 0, InvalidArgument, "--set: \"", text,
                 "\" is not KEY=VALUE; for example --set optim.lr=3e-4");
  return {text.substr(0, equals), text.substr(equals + 1)};
}

RunConfig load_run_config(const fs::path& file, const std::vector<Setting>& settings) {
  return load(file, settings, {{}}).front();
}

std::vector<RunConfig> load_run_configs(const fs::path& file, const std::vector<Setting>& settings,
                                        const std::vector<std::vector<Setting>>& alternatives) {
  return load(file, settings, alternatives);
}

std::string to_toml(const RunConfig& config) {
  RunConfig copy = config;
  std::string text;
  std::string section;
  for (const Key& key : run_config_keys()) {
    if (key.has_effect != nullptr && !key.has_effect(config)) {
      continue;
    }
    const size_t dot = key.name.find('.');
    if (key.name.substr(0, dot) != section) {
      section = key.name.substr(0, dot);
      text += (text.empty() ? "[" : "\n[") + section + "]\n";
    }
    text += key.name.substr(dot + 1) + " = " + value_text(key, copy) + "\n";
  }
  return text;
}

std::string describe_keys() {
  RunConfig defaults;
  std::ostringstream out;
  for (const Key& key : run_config_keys()) {
    out << key.name << " = " << value_text(key, defaults) << "\n    " << key.meaning;
    if (!key.choices.empty()) {
      out << " (";
      for (const std::string& choice : key.choices) {
        out << (&choice == key.choices.data() ? "" : ", ") << choice;
      }
      out << ")";
    }
    if (key.effect != nullptr) {
      out << "; counts when " << key.effect;
    }
    out << "\n";
  }
  return out.str();
}

}  // namespace mantissa::train
