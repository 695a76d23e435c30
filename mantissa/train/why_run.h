#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/record/event.h"
#include "mantissa/train/run_config.h"

namespace mantissa::train {

/// Steps of one of two runs that took turns.
struct TimedSteps {
  RunConfig config;
  std::vector<std::vector<double>> rounds;  // seconds of the timed steps of each turn
  std::map<std::string, double> phases;     // of the mean timed step; see record::Step::phases
  record::TimeSplit split;                  // the fastest of some more steps, by operation
};

struct TimedPair {
  TimedSteps first;
  TimedSteps second;
};

inline constexpr int64_t kTimingRounds = 6;  // fewer are no interval (base/bootstrap.h)

/// Trains both runs from their beginning, on the same batches, in kTimingRounds turns whose order
/// alternates (A B, B A, ...), and times `steps` steps of each in all, in equal parts. A turn
/// begins with an empty loader and one step that is not timed, so that a wait for data shows as it
/// would in a run that goes on; the other run's loader is gone meanwhile. Steps that a dynamic loss
/// scale skips are not timed. At last five steps of each are timed by operation, of which the
/// fastest is kept, for what else a machine does falls on single operations. Writes nothing. A
/// train.microbatch of "auto" is decided once, for the first. The runs are to differ in their
/// precision alone. Throws InvalidArgument when steps is no multiple of kTimingRounds above 0, and
/// Error when a step cannot be applied.
MANTISSA_API TimedPair time_pair(const RunConfig& first, const RunConfig& second, int64_t steps);

}  // namespace mantissa::train
