#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include <toml++/toml.h>

#include "mantissa/amp/policy.h"
#include "mantissa/amp/policy_builder.h"
#include "mantissa/base/error.h"
#include "mantissa/base/nearest.h"

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

void add_rules(PolicyBuilder& builder, const toml::table& rules, std::string_view where) {
  for (const auto& [key, node] : rules) {
    const std::string here = location(where, node.source());
    // TOML reads softmax.int without quotes as a table `softmax`.
    MANTISSA_CHECK(!node.is_table(), InvalidArgument, here, ": \"", key.str(),
                   "\" is a table; put an operation with a dot in double quotes");
    builder.add_rule(key.str(), text_of(node, key.str(), here), here);
  }
}

}  // namespace

std::string to_toml(const Policy& policy) {
  std::ostringstream out;
  out << "base = \"" << policy.base << "\"\n"
      << "compute = \"" << numerics::to_string(policy.compute) << "\"\n";
  if (!policy.rules.empty()) {
    out << "\n[rules]\n";
  }
  for (const auto& [operation, rule] : policy.rules) {
    out << '"' << operation << "\" = \"" << to_string(rule) << "\"\n";
  }
  return out.str();
}

Policy parse_policy_toml(std::string_view toml, std::string_view where) {
  toml::table document;
  try {
    document = toml::parse(toml, where);
  } catch (const toml::parse_error& error) {
    throw InvalidArgument(
        concat(location(where, error.source()), ": ", error.description(), "; write it as TOML"));
  }
  PolicyBuilder builder;
  for (const auto& [key, node] : document) {
    const std::string here = location(where, node.source());
    if (key == "base") {
      builder.set_base(text_of(node, key.str(), here), here);
    } else if (key == "compute") {
      builder.set_compute(text_of(node, key.str(), here), here);
    } else if (key == "rules") {
      MANTISSA_CHECK(node.is_table(), InvalidArgument, here,
                     ": \"rules\" is not a table; write [rules], then OPERATION = \"RULE\" lines");
      add_rules(builder, *node.as_table(), where);
    } else {
      throw InvalidArgument(concat(here, ": unknown key \"", key.str(), "\"",
                                   suggestion(key.str(), {"base", "compute", "rules"})));
    }
  }
  return builder.build(concat("policy ", where));
}

Policy find_policy(const std::string& name_or_path) {
  if (name_or_path.find('/') == std::string::npos && !name_or_path.ends_with(".toml")) {
    return parse_policy(name_or_path);
  }
  std::ifstream file(name_or_path, std::ios::binary);
  MANTISSA_CHECK(file.is_open() && !std::filesystem::is_directory(name_or_path), IoError, "policy ",
                 name_or_path,
                 ": cannot be read; give an existing file, or one of: torch torch-cpu fp32");
  const std::string content{std::istreambuf_iterator<char>(file), {}};
  return parse_policy_toml(content, name_or_path);
}

}  // namespace mantissa::amp
