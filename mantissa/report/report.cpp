#include "mantissa/report/report.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/base/nearest.h"

namespace mantissa::report {

Report make_report(std::vector<Run> runs) {
  check_comparable(runs);
  Material material;
  material.groups = groups_of(runs);
  material.group_of = group_of_each(material.groups);
  material.runs = std::move(runs);
  Report report;
  for (const Run& run : material.runs) {
    report.runs.push_back(run.name);
  }
  for (const auto make : {comparison_section, learning_section, speed_section, time_split_section,
                          memory_section, scale_section, optimizer_section, gradients_section,
                          ranges_section, messages_section, reproduction_section}) {
    Section section = make(material);
    if (!section.is_empty()) {
      report.sections.push_back(std::move(section));
    }
  }
  return report;
}

const Table& table_of(const Report& report, const std::string& id) {
  std::vector<std::string> names;
  for (const Section& section : report.sections) {
    for (const Table& table : section.tables) {
      if (table.id == id) {
        return table;
      }
      names.push_back(table.id);
    }
  }
  throw InvalidArgument(concat("--table \"", id, "\"", suggestion(id, names)));
}

std::string to_text(const Report& report) {
  constexpr size_t kMostRows = 20;
  std::string text;
  for (const Section& section : report.sections) {
    if (section.tables.empty()) {
      continue;
    }
    text += (text.empty() ? "" : "\n") + section.title + "\n";
    for (const std::string& paragraph : section.prose) {
      text += printable(paragraph) + "\n";
    }
    for (const Table& table : section.tables) {
      text += "\n" + table.caption + "\n" + to_text(table, kMostRows);
    }
  }
  return text;
}

std::string to_json(const Report& report) {
  std::string tables;
  for (const Section& section : report.sections) {
    for (const Table& table : section.tables) {
      tables += (tables.empty() ? "" : ",") + to_json(table);
    }
  }
  const nlohmann::ordered_json runs = report.runs;
  return concat("{\"schema\":1,\"runs\":",
                runs.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace),
                ",\"tables\":[", tables, "]}");
}

}  // namespace mantissa::report
