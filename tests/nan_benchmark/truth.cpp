#include "truth.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/base/file.h"

namespace mantissa::nan_benchmark {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 14> kKeys = {
    "name",  "kind", "policy", "scale", "finding", "pass",   "operation",
    "scope", "cast", "cure",   "keep",  "why",     "source", "hidden"};

Truth parse(const json& entry, const std::string& where) {
  for (const auto& [key, value] : entry.items()) {
    MANTISSA_CHECK(std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end(), Corruption, where,
                   ": unknown key \"", key, "\"");
  }
  Truth truth;
  truth.name = entry.at("name");
  truth.kind = entry.at("kind");
  truth.policy = entry.at("policy");
  truth.scale = entry.value("scale", 1.0);
  truth.finding = entry.at("finding");
  truth.pass = entry.at("pass");
  truth.operation = entry.at("operation");
  truth.is_cast = entry.value("cast", false);
  truth.scope = entry.at("scope");
  truth.is_hidden = entry.value("hidden", false);
  truth.cure = entry.at("cure");
  truth.keep = entry.value("keep", std::vector<std::string>());
  truth.why = entry.at("why");
  truth.source = entry.value("source", "");
  MANTISSA_CHECK(!truth.why.empty(), Corruption, where, ": no reason; say why in \"why\"");
  MANTISSA_CHECK(truth.is_curable_by("keep") == !truth.keep.empty(), Corruption, where,
                 ": \"keep\" lists ", truth.keep.size(),
                 " operations; it goes with a cure of keep");
  return truth;
}

}  // namespace

bool Truth::is_curable_by(const std::string& way) const {
  return std::find(cure.begin(), cure.end(), way) != cure.end();
}

std::vector<Truth> read_truths(const std::string& path) {
  const std::string text = read_file(path);
  std::vector<Truth> truths;
  std::set<std::string> names;
  std::string where = path;
  try {
    const json file = json::parse(text);
    for (const json& entry : file.at("cases")) {
      where = concat(path, ": ", entry.at("name").get<std::string>());
      truths.push_back(parse(entry, where));
      MANTISSA_CHECK(names.insert(truths.back().name).second, Corruption, where, " is there twice");
    }
  } catch (const json::exception& error) {
    throw Corruption(concat(where, ": ", error.what()));
  }
  return truths;
}

}  // namespace mantissa::nan_benchmark
