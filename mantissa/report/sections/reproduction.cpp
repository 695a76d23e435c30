#include <array>
#include <cmath>
#include <ctime>
#include <map>
#include <set>

#include "mantissa/base/error.h"
#include "mantissa/report/quantity.h"
#include "mantissa/report/section.h"

namespace mantissa::report {
namespace {

std::string utc_text(double time_s) {
  const auto seconds = static_cast<std::time_t>(time_s);
  std::tm parts{};
  std::array<char, 32> buffer{};
  if (!std::isfinite(time_s) || gmtime_r(&seconds, &parts) == nullptr ||
      std::strftime(buffer.data(), buffer.size(), "%Y-%m-%d %H:%M:%S", &parts) == 0) {
    return "-";
  }
  return buffer.data();
}

Table environment_of(const Material& material) {
  Table table{.id = "environment", .caption = "Environment"};
  table.columns = {{"run"}, {"started, UTC"}, {"took", true}, {"processor"}, {"resumed", true}};
  std::set<std::string> libraries;
  for (const Run& run : material.runs) {
    for (const record::RunStart& start : run.starts) {
      for (const auto& [library, version] : start.versions) {
        libraries.insert(library);
      }
    }
  }
  libraries.erase("cpu");  // has its own column
  for (const std::string& library : libraries) {
    table.columns.push_back({library});
  }
  for (const Run& run : material.runs) {
    if (run.starts.empty()) {
      continue;
    }
    const record::RunStart& start = run.starts.back();
    const double took = run.last_s - run.started_s;
    std::vector<Cell> row = {text_cell(run.name), text_cell(utc_text(run.started_s)),
                             number_cell(took, duration_text(took)), text_cell(start.cpu),
                             count_cell(static_cast<int64_t>(run.starts.size()) - 1)};
    for (const std::string& library : libraries) {
      const auto found = start.versions.find(library);
      row.push_back(text_cell(found == start.versions.end() ? "" : found->second));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table settings_of(const Material& material) {
  Table table{.id = "settings", .caption = "Settings that differ"};
  table.columns = {{"run"}};
  const std::vector<std::string> keys = differing_settings(material.runs);
  for (const std::string& key : keys) {
    table.columns.push_back({key});
  }
  for (const Run& run : material.runs) {
    std::vector<Cell> row = {text_cell(run.name)};
    for (const std::string& key : keys) {
      const auto found = run.settings.find(key);
      row.push_back(text_cell(found == run.settings.end() ? "-" : found->second));
    }
    table.rows.push_back(std::move(row));
  }
  if (keys.empty()) {
    table.rows.clear();
  }
  return table;
}

// As a shell reads it back.
std::string quoted(const std::string& text) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=+:,@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) {
    return text;
  }
  std::string result = "'";
  for (const char c : text) {
    result += c == '\'' ? "'\\''" : std::string(1, c);
  }
  return result + "'";
}

std::string commands_for(const Material& material, const RunGroup& group) {
  std::string seeds;
  for (const size_t i : group.runs) {
    const auto seed = material.runs[i].settings.find("train.seed");
    seeds += seed == material.runs[i].settings.end() ? "" : " " + quoted(seed->second);
  }
  const std::string folder = "runs/" + material.runs[group.runs.front()].name;
  if (group.runs.size() == 1) {
    return concat("# the run file below as again.toml; the folder must not hold a run\n",
                  "mantissa train again.toml --out ", quoted(folder + "-again"), "\n",
                  "mantissa eval ", quoted(folder + "-again"), "\n\n");
  }
  return concat("# the run file below as again.toml; the folders must not hold a run\n",
                "for seed in", seeds, "; do\n",
                "  mantissa train again.toml --set train.seed=\"$seed\" --out ",
                quoted(folder + "-again"), "-\"$seed\"\ndone\n\n");
}

}  // namespace

Section reproduction_section(const Material& material) {
  Section section{.id = "reproduction", .title = "Environment and how to repeat it"};
  for (Table table : {environment_of(material), settings_of(material)}) {
    if (!table.rows.empty()) {
      section.tables.push_back(std::move(table));
    }
  }
  for (const RunGroup& group : material.groups) {
    const Run& run = material.runs[group.runs.front()];
    if (!run.starts.empty() && !run.starts.back().config.empty()) {
      section.listings.push_back(
          {group.name, commands_for(material, group) + run.starts.back().config});
    }
  }
  if (!section.listings.empty()) {
    section.prose.emplace_back(
        "Each run file is complete: every key that counts, with its value. Files in it are named "
        "as "
        "on the machine of the run.");
  }
  return section;
}

}  // namespace mantissa::report
