#pragma once

#include <string>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/report/run.h"
#include "mantissa/report/section.h"

namespace mantissa::report {

/// All that records say of some runs, as data.
struct Report {
  std::vector<std::string> runs;  // their names
  std::vector<Section> sections;  // those that have something to say
};

/// Throws InvalidArgument for runs that check_comparable refuses.
MANTISSA_API Report make_report(std::vector<Run> runs);

/// The table of that name. Throws InvalidArgument with the names when there is none.
MANTISSA_API const Table& table_of(const Report& report, const std::string& id);

/// For a terminal: prose and the first rows of each table.
MANTISSA_API std::string to_text(const Report& report);

/// `{"schema":1,"runs":[...],"tables":[...]}`.
MANTISSA_API std::string to_json(const Report& report);

}  // namespace mantissa::report
