#include "mantissa/train/run_config.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

#define TOML_EXCEPTIONS 1
#include <toml++/toml.h>

#include "mantissa/base/error.h"
#include "mantissa/base/nearest.h"
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

void check_range(const Key& key, double value, const std::string& where, const std::string& shown) {
  MANTISSA_CHECK(value >= key.minimum && value <= key.maximum, InvalidArgument, where, ": ",
                 key.name, " is ", shown, "; valid: ", key.minimum,
                 key.maximum < 1e300 ? concat(" to ", key.maximum) : " or more");
}

void assign(const Key& key, const toml::node& node, RunConfig& config, const std::string& where) {
  const std::string shown = text_of(node);
  const auto expect = [&](bool holds, const char* type) {
    MANTISSA_CHECK(holds, InvalidArgument, where, ": ", key.name, " is ", shown, "; expected ",
                   type);
  };
  std::visit(Overloaded{[&](int64_t* target) {
                          expect(node.is_integer(), "an integer");
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
  MANTISSA_CHECK(fs::is_regular_file(file), IoError, file.string(),
                 ": no such run file; see recipes/ for examples");
  try {
    return toml::parse_file(file.string());
  } catch (const toml::parse_error& error) {
    throw InvalidArgument(concat(file.string(), ":", error.source().begin.line, ": ",
                                 error.description(), "; a run file is TOML"));
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

void check_together(const RunConfig& c, const std::string& where,
                    const std::set<std::string>& given) {
  MANTISSA_CHECK(!c.data.fasta.empty(), InvalidArgument, where,
                 ": data.fasta is missing; name the genome to train on");
  for (const Key& key : run_config_keys()) {
    const bool idle = key.has_effect != nullptr && !key.has_effect(c);
    MANTISSA_CHECK(!idle || !given.contains(key.name), InvalidArgument, where, ": ", key.name,
                   " has no effect here; remove it, it counts when ", key.effect);
  }
  MANTISSA_CHECK(c.train.batch % c.microbatch() == 0, InvalidArgument, where, ": train.batch ",
                 c.train.batch, " is not a multiple of train.microbatch ", c.microbatch(),
                 "; choose one that divides it");
  const bool narrow = c.precision.compute == "bf16" || c.precision.compute == "fp16";
  MANTISSA_CHECK(narrow || c.precision.master == "parameters", InvalidArgument, where,
                 ": precision.master is \"optimizer\" with precision.compute \"",
                 c.precision.compute, "\"; 16-bit parameters need bf16 or fp16");
  MANTISSA_CHECK(c.optim.schedule != "cosine" || c.optim.min_lr <= c.optim.lr, InvalidArgument,
                 where, ": optim.min_lr ", c.optim.min_lr, " is above optim.lr ", c.optim.lr,
                 "; it is where the cosine ends");
}

std::string quoted(const std::string& text) {
  std::ostringstream out;
  out << toml::value<std::string>(text);
  return out.str();
}

std::string value_text(const Field& field) {
  return std::visit(
      Overloaded{[](const int64_t* value) { return std::to_string(*value); },
                 [](const double* value) {
                   std::ostringstream out;
                   out << toml::value<double>(*value);
                   return out.str();
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
      field);
}

}  // namespace

std::string RunConfig::scale_kind() const {
  if (scale.kind != "auto") {
    return scale.kind;
  }
  return precision.compute == "fp16" ? "dynamic" : "none";
}

Setting parse_setting(const std::string& text) {
  const size_t equals = text.find('=');
  MANTISSA_CHECK(equals != std::string::npos && equals > 0, InvalidArgument, "--set: \"", text,
                 "\" is not KEY=VALUE; for example --set optim.lr=3e-4");
  return {text.substr(0, equals), text.substr(equals + 1)};
}

RunConfig load_run_config(const fs::path& file, const std::vector<Setting>& settings) {
  const toml::table table = parse_file(file);
  RunConfig config;
  std::set<std::string> given;
  for (const auto& [section, node] : table) {
    const auto line = [&](const toml::node& at) {
      return concat(file.string(), ":", at.source().begin.line);
    };
    MANTISSA_CHECK(node.is_table(), InvalidArgument, line(node), ": \"", section.str(),
                   "\" stands outside of a section; valid sections: data model train optim "
                   "precision scale");
    for (const auto& [name, value] : *node.as_table()) {
      const Key& key = find_key(concat(section.str(), ".", name.str()), line(value));
      assign(key, value, config, line(value));
      resolve_paths(key, config, file.parent_path());
      given.insert(key.name);
    }
  }
  for (const Setting& setting : settings) {
    const std::string where = "--set " + setting.key + "=" + setting.value;
    const Key& key = find_key(setting.key, where);
    const toml::table parsed = parse_value(setting);
    assign(key, *parsed.get("value"), config, where);
    resolve_paths(key, config, fs::current_path());
    given.insert(key.name);
  }
  check_together(config, file.string(), given);
  return config;
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
    text += key.name.substr(dot + 1) + " = " + value_text(key.field(copy)) + "\n";
  }
  return text;
}

std::string describe_keys() {
  RunConfig defaults;
  std::ostringstream out;
  for (const Key& key : run_config_keys()) {
    out << key.name << " = " << value_text(key.field(defaults)) << "\n    " << key.meaning;
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
