#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/base/file.h"
#include "mantissa/record/event.h"

namespace mantissa::report {

/// A run as its record tells it.
struct Run {
  std::string name;              // as short as it can be and differ from the other runs
  std::filesystem::path record;  // the file
  double started_s = 0;          // since 1970-01-01 UTC: the first line, and
  double last_s = 0;             // the last
  std::vector<record::RunStart> starts;
  std::vector<record::Step> steps;
  std::vector<record::Evaluation> evaluations;
  std::vector<record::CheckpointSaved> checkpoints;
  std::vector<record::Message> messages;
  std::vector<record::Ranges> ranges;
  std::vector<record::TimeSplit> time_splits;
  std::optional<record::Summary> summary;  // none: it goes on, or was killed

  /// Of the run file that it started with last, as `section.key`; all but texts as TOML writes
  /// them. Empty where there is none or it cannot be read.
  std::map<std::string, std::string> settings;
};

struct Runs {
  std::vector<Run> runs;
  std::vector<std::string> warnings;  // a last line that was cut off
};

/// Reads what each path names: a record, the folder of a run, or a folder of such folders (what
/// `mantissa compare --out` names). Throws IoError for what is not there, Corruption for a record
/// that is damaged or impossible (record/reader.h), Unsupported for one of a later schema, and
/// InvalidArgument for a run that is named twice.
MANTISSA_API Runs read_runs(const std::vector<std::filesystem::path>& paths,
                            FileSystem& files = posix_files());

/// Throws InvalidArgument when two runs train on or validate with other bases, so that their bits
/// per base say nothing about each other. What they run does not say is not held against them.
MANTISSA_API void check_comparable(const std::vector<Run>& runs);

/// The summary; for a run without one what its steps say, NaN or empty for the rest, and the peak
/// as one category, `all`.
MANTISSA_API record::Summary summary_of(const Run& run);

}  // namespace mantissa::report
