#include "mantissa/report/run_group.h"

#include <map>
#include <optional>
#include <set>

#include "mantissa/base/error.h"

namespace mantissa::report {
namespace {

using Settings = std::map<std::string, std::string>;

constexpr const char* kSeed = "train.seed";
constexpr const char* kPrecision = "precision.compute";

std::string value_of(const Run& run, const std::string& key) {
  const auto found = run.settings.find(key);
  return found == run.settings.end() ? std::string() : found->second;
}

// `bf16, lr 0.002`: as many differing settings, the precision first, as tell the groups apart.
std::vector<std::string> labels(const std::vector<Run>& runs, const std::vector<RunGroup>& groups) {
  std::vector<std::string> keys = {kPrecision};
  for (const std::string& key : differing_settings(runs)) {
    if (key != kPrecision && key != kSeed) {
      keys.push_back(key);
    }
  }
  std::vector<std::string> texts(groups.size());
  for (const std::string& key : keys) {
    std::set<std::string> before(texts.begin(), texts.end());
    std::vector<std::string> longer = texts;
    for (size_t i = 0; i < groups.size(); ++i) {
      const std::string value = value_of(runs[groups[i].runs.front()], key);
      const std::string name = key == kPrecision ? "" : key.substr(key.find('.') + 1) + " ";
      longer[i] += value.empty() ? "" : (longer[i].empty() ? "" : ", ") + name + value;
    }
    if (key == kPrecision ||
        std::set<std::string>(longer.begin(), longer.end()).size() > before.size()) {
      texts = longer;
    }
  }
  return texts;
}

}  // namespace

std::vector<std::string> differing_settings(const std::vector<Run>& runs) {
  std::map<std::string, std::set<std::string>> values;
  for (const Run& run : runs) {
    for (const auto& [key, value] : run.settings) {
      values[key];
    }
  }
  std::vector<std::string> differing;
  for (auto& [key, seen] : values) {
    for (const Run& run : runs) {
      if (!run.settings.empty()) {
        seen.insert(value_of(run, key));
      }
    }
    if (seen.size() > 1) {
      differing.push_back(key);
    }
  }
  return differing;
}

std::vector<RunGroup> groups_of(const std::vector<Run>& runs) {
  std::vector<RunGroup> groups;
  std::map<Settings, size_t> places;
  for (size_t i = 0; i < runs.size(); ++i) {
    Settings settings = runs[i].settings;
    settings.erase(kSeed);
    const bool is_known = !settings.empty();
    const auto found = is_known ? places.find(settings) : places.end();
    if (found != places.end()) {
      groups[found->second].runs.push_back(i);
      continue;
    }
    if (is_known) {
      places[settings] = groups.size();
    }
    groups.push_back({.name = runs[i].name, .runs = {i}});
  }
  const std::vector<std::string> texts = labels(runs, groups);
  for (size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].runs.size() > 1) {
      groups[i].name = concat(texts[i].empty() ? groups[i].name : texts[i], " (",
                              groups[i].runs.size(), " runs)");
    }
  }
  return groups;
}

std::vector<size_t> group_of_each(const std::vector<RunGroup>& groups) {
  std::map<size_t, size_t> group_of;
  for (size_t i = 0; i < groups.size(); ++i) {
    for (const size_t run : groups[i].runs) {
      group_of[run] = i;
    }
  }
  std::vector<size_t> result;
  result.reserve(group_of.size());
  for (const auto& [run, group] : group_of) {
    result.push_back(group);
  }
  return result;
}

}  // namespace mantissa::report
