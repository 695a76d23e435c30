#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/report/run.h"

namespace mantissa::report {

/// Runs that differ in nothing but the seed.
struct RunGroup {
  std::string name;  // of its only run; else what tells it from the other groups, and its size
  std::vector<size_t> runs;  // places in the list of runs
};

/// In the order of their first runs. A run whose settings are not known is alone.
MANTISSA_API std::vector<RunGroup> groups_of(const std::vector<Run>& runs);

/// The group of each run.
MANTISSA_API std::vector<size_t> group_of_each(const std::vector<RunGroup>& groups);

/// The settings that are not the same in all runs whose settings are known, in order.
MANTISSA_API std::vector<std::string> differing_settings(const std::vector<Run>& runs);

}  // namespace mantissa::report
