#pragma once

#include <string>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/base/file.h"

namespace mantissa::report {

/// What `mantissa report` and `mantissa-report` are asked for.
struct CommandOptions {
  std::vector<std::string> runs;  // records, folders of runs, or folders of these
  std::string output;             // an HTML file; empty: none
  std::string table;              // only this table; empty: all, in CSV `runs`
  bool json = false;
  bool csv = false;
};

struct CommandResult {
  std::string text;                   // for stdout
  std::vector<std::string> messages;  // for stderr, a line each
};

/// Reads the runs and writes the page, whole or not at all. `program` is what the page says that it
/// was made by. Throws what read_runs, make_report, table_of and replace_file throw, and
/// InvalidArgument for an output whose name does not end in `.html`.
MANTISSA_API CommandResult run_command(const CommandOptions& options, const std::string& program,
                                       FileSystem& files = posix_files());

}  // namespace mantissa::report
