#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include <toml++/toml.h>

#include "mantissa/amp/policy.h"
#include "mantissa/amp/policy_builder.h"
#include "mantissa/base/error.h"
#include "mantissa/base/nearest.h"
#include "mantissa/base/toml_advice.h"

namespace mantissa::amp {
namespace {

std::string location(std::string_view where, const toml::source_region& source) {
  return concat("policy ", where, ":", source.begin.line);
}

std::string text_of(const toml::node& node, std::string_view key, const std::string& where) {
  const auto text = node.value_exact<std::string>();
  MANTISSA_CHECK(text, InvalidArgument, where, ": \"", key,
                 "\" is not a string; write its value in double quotes");
  return *text;
}

using Add = void (PolicyBuilder::*)(std::string_view, std::string_view, std::string_view);

struct Section {
  std::string_view name;
  std::string_view line;  // as it is to be written
  Add add;
};

constexpr Section kSections[] = {
    {"rules", "OPERATION = \"RULE\"", &PolicyBuilder::add_rule},
    {"scopes", "\"GLOB\" = \"FORMAT\"", &PolicyBuilder::add_scope},
    {"parameters", "\"GLOB\" = \"FORMAT\"", &PolicyBuilder::add_parameter},
};

void read_section(PolicyBuilder& builder, const Section& section, const toml::node& entries,
                  std::string_view where) {
  MANTISSA_CHECK(entries.is_table(), InvalidArgument, location(where, entries.source()), ": \"",
                 section.name, "\" is not a table; write [", section.name, "], then ", section.line,
                 " lines");
  for (const auto& [key, node] : *entries.as_table()) {
    const std::string here = location(where, node.source());
    // TOML reads softmax.int without quotes as a table `softmax`.
    MANTISSA_CHECK(!node.is_table(), InvalidArgument, here, ": \"", key.str(),
                   "\" is a table; put a name with a dot in double quotes");
    (builder.*section.add)(key.str(), text_of(node, key.str(), here), here);
  }
}

const Section* find_section(std::string_view name) {
  for (const Section& section : kSections) {
    if (section.name == name) {
      return &section;
    }
  }
  return nullptr;
}

bool is_setting(std::string_view name) {
  const std::vector<std::string> names = PolicyBuilder::setting_names();
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::vector<std::string> key_names() {
  std::vector<std::string> names = PolicyBuilder::setting_names();
  names.insert(names.begin(), "base");
  for (const Section& section : kSections) {
    names.emplace_back(section.name);
  }
  return names;
}

}  // namespace

std::string to_toml(const Policy& policy) {
  std::ostringstream out;
  const auto line = [&](std::string_view key, std::string_view value) {
    out << key << " = \"" << value << "\"\n";
  };
  line("base", policy.base);
  line("compute", numerics::to_string(policy.compute));
  line("param", numerics::to_string(policy.param));
  if (policy.output) {
    line("output", numerics::to_string(*policy.output));
  }
  for (const Fix fix : kFixes) {
    line(words(fix).name, policy.fixes.contains(fix) ? words(fix).on : words(fix).off);
  }
  const auto section = [&](std::string_view name, const auto& entries) {
    if (!entries.empty()) {
      out << "\n[" << name << "]\n";
    }
    for (const auto& [key, value] : entries) {
      line(concat('"', key, '"'), to_string(value));
    }
  };
  section("rules", policy.rules);
  section("scopes", policy.scopes);
  section("parameters", policy.parameters);
  return out.str();
}

Policy parse_policy_toml(std::string_view toml, std::string_view where) {
  toml::table document;
  try {
    document = toml::parse(toml, where);
  } catch (const toml::parse_error& error) {
    throw InvalidArgument(concat(location(where, error.source()), ": ", error.description(), "; ",
                                 toml_advice(error.description(), "write it as TOML")));
  }
  PolicyBuilder builder;
  for (const auto& [key, node] : document) {
    const std::string here = location(where, node.source());
    if (key == "base") {
      builder.set_base(text_of(node, key.str(), here), here);
    } else if (const Section* section = find_section(key.str())) {
      read_section(builder, *section, node, where);
    } else {
      MANTISSA_CHECK(is_setting(key.str()), InvalidArgument, here, ": unknown key \"", key.str(),
                     "\"", suggestion(key.str(), key_names()));
      builder.set(key.str(), text_of(node, key.str(), here), here);
    }
  }
  return builder.build(concat("policy ", where));
}

Policy find_policy(const std::string& name_or_path) {
  if (name_or_path.find('/') == std::string::npos && !name_or_path.ends_with(".toml")) {
    return parse_policy(name_or_path);
  }
  std::ifstream file(name_or_path, std::ios::binary);
  MANTISSA_CHECK(!std::filesystem::is_directory(name_or_path), IoError, "policy ", name_or_path,
                 ": is a folder; name a policy file (.toml) in it");
  MANTISSA_CHECK(file.is_open(), IoError, "policy ", name_or_path,
                 ": cannot be read; give an existing file, or one that mantissa policy list shows");
  const std::string content{std::istreambuf_iterator<char>(file), {}};
  return parse_policy_toml(content, name_or_path);
}

}  // namespace mantissa::amp
