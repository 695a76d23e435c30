#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "mantissa/report/command.h"

namespace mantissa::report {

/// For CLI::Option::check.
inline std::string refuse_empty(const std::string& text) {
  return text.empty() ? "is empty; leave the option out, or give it a value" : "";
}

/// The arguments of `mantissa report`, which are those of `mantissa-report`.
inline void add_options(CLI::App& command, CommandOptions& options) {
  command
      .add_option("RUN", options.runs,
                  "folder of a run, its record.jsonl, or a folder of runs such as compare makes")
      ->required();
  command
      .add_option("-o,--output", options.output,
                  "page to write: one HTML file that needs nothing else")
      ->check(refuse_empty);
  CLI::Option* json = command.add_flag("--json", options.json, "all tables as one JSON object");
  CLI::Option* csv = command.add_flag("--csv", options.csv, "one table as CSV: that of the runs");
  json->excludes(csv);
  command
      .add_option("--table", options.table,
                  "one table, whole: runs, step-times, memory, skipped-steps, ...")
      ->check(refuse_empty);
  command.footer(
      "Without -o, --json and --csv the tables are printed as text. Runs that differ only in "
      "their\n"
      "seed are drawn as one line with a band. Examples:\n"
      "  mantissa report runs/a runs/b -o r.html\n"
      "  mantissa report runs/c --csv --table step-times > times.csv");
}

}  // namespace mantissa::report
