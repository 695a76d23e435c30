#pragma once

// For tests of sections.

#include <string>
#include <utility>
#include <vector>

#include "mantissa/report/run_testing.h"
#include "mantissa/report/section.h"

namespace mantissa::report {

inline Material material_of(std::vector<Run> runs) {
  Material material;
  material.groups = groups_of(runs);
  material.group_of = group_of_each(material.groups);
  material.runs = std::move(runs);
  return material;
}

inline std::vector<std::string> column(const Table& table, size_t i) {
  std::vector<std::string> texts;
  for (const std::vector<Cell>& row : table.rows) {
    texts.push_back(row.at(i).text);
  }
  return texts;
}

}  // namespace mantissa::report
