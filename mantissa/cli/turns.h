#pragma once

#include <atomic>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/base/energy_meter.h"
#include "mantissa/cli/arms.h"
#include "mantissa/record/slice.h"
#include "mantissa/report/study.h"

namespace mantissa::cli {

struct Comparison {
  std::filesystem::path out;
  std::vector<Arm> arms;
  int64_t seeds = 1;
  std::optional<EnergyCounters> energy;  // none: it is not measured
};

struct TurnsOutcome {
  bool is_interrupted = false;  // by `stop`; then there is nothing else
  bool has_diverged = false;    // a run that came to its end
  std::vector<report::StudyRun> runs;
  std::vector<record::Slice> slices;
  std::string energy_problem;  // why none was measured
};

/// Trains all runs. Seed by seed, the runs of a seed take turns, a slice each (train/run_slice.h),
/// in an order that is reversed from round to round (A B C, C B A, ...), so that neither a drift of
/// the machine nor the place in a round favours one. What was trained is kept; a run that fails is
/// told of and the others go on. Progress goes to stderr. Throws what refuses a run before its
/// first step, and the reason when every run failed.
TurnsOutcome train_in_turns(const Comparison& comparison, const std::atomic<int>& stop);

}  // namespace mantissa::cli
