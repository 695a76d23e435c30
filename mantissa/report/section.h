#pragma once

#include <string>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/report/chart.h"
#include "mantissa/report/run.h"
#include "mantissa/report/run_group.h"
#include "mantissa/report/table.h"

namespace mantissa::report {

/// Text to be copied, such as a run file.
struct Listing {
  std::string title;
  std::string text;
};

/// What a report says of one matter. One without charts, tables and listings has nothing to say and
/// is left out.
struct Section {
  std::string id;  // letters and hyphens
  std::string title;
  std::vector<std::string> prose;  // paragraphs
  std::vector<Chart> charts;
  std::vector<Table> tables;
  std::vector<Listing> listings;

  bool is_empty() const { return charts.empty() && tables.empty() && listings.empty(); }
};

/// What sections are made from.
struct Material {
  std::vector<Run> runs;
  std::vector<RunGroup> groups;
  std::vector<size_t> group_of;  // each run
};

// Each in a file of its own in mantissa/report/sections/; report.cpp has their order.
MANTISSA_API Section comparison_section(const Material& material);
MANTISSA_API Section learning_section(const Material& material);
MANTISSA_API Section speed_section(const Material& material);
MANTISSA_API Section time_split_section(const Material& material);
MANTISSA_API Section memory_section(const Material& material);
MANTISSA_API Section scale_section(const Material& material);
MANTISSA_API Section optimizer_section(const Material& material);
MANTISSA_API Section gradients_section(const Material& material);
MANTISSA_API Section ranges_section(const Material& material);
MANTISSA_API Section messages_section(const Material& material);
MANTISSA_API Section reproduction_section(const Material& material);

}  // namespace mantissa::report
