#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "mantissa/record/slice.h"
#include "mantissa/report/attribution.h"
#include "mantissa/report/study.h"
#include "mantissa/train/run_config.h"

namespace mantissa::cli {

/// What runs of a comparison share but for their seed.
struct Arm {
  std::string name;
  std::string format;            // precision, or precision and policy
  std::string microbatch;        // as it was asked for; empty: as the run file says
  std::filesystem::path folder;  // has a folder for each seed
  train::RunConfig config;       // of the first seed

  /// Of a run; seeds count on from that of `config`.
  train::RunConfig config_of(int64_t seed_index) const;
  std::filesystem::path folder_of(int64_t seed_index) const;
};

/// What arms differ in; each list as the command line has it, entries of which may be lists with
/// commas.
struct Variations {
  std::vector<std::string> precisions;
  std::vector<std::string> policies;
  std::vector<std::string> microbatches;
};

/// Each precision with each policy, but fp32, in which policies differ in nothing, once; and that
/// with each microbatch. Throws what load_run_configs does, and InvalidArgument for names that are
/// empty, given twice, or whose folders in `out` would be the same.
std::vector<Arm> make_arms(const std::string& run_file, const std::vector<train::Setting>& settings,
                           const Variations& variations, const std::filesystem::path& out);

/// The arm that others are held against: the first of fp32, or the first.
const Arm& reference_of(const std::vector<Arm>& arms);

/// Gives each arm whose microbatch is "auto" its number, the same for all its seeds: that of a run
/// which is there, else measured now (train/microbatch.h) and told of on stderr. Throws what
/// with_microbatch does.
void decide_microbatches(std::vector<Arm>& arms);

/// As cells of an attribution, that of the reference first.
std::vector<report::AttributionCell> cells_of(const std::vector<Arm>& arms);

/// Whole runs in `out` that `slices` tell of and `asked` does not name, of the same settings as
/// `arms` but for what arms differ in and the seed. Those of others are told of on stderr.
std::vector<report::StudyRun> earlier_runs(const std::filesystem::path& out,
                                           const std::vector<record::Slice>& slices,
                                           const std::vector<Arm>& arms,
                                           const std::vector<report::StudyRun>& asked);

}  // namespace mantissa::cli
