#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/monitor/nonfinite_origin.h"
#include "mantissa/monitor/ranges.h"
#include "mantissa/numerics/format.h"
#include "mantissa/record/event.h"
#include "mantissa/train/run_config.h"

namespace mantissa::train {

struct InspectOptions {
  int64_t steps = 4;

  /// Where to begin: the folder of a run, for its newest checkpoint, or that of one checkpoint.
  /// Empty: at the beginning.
  std::filesystem::path checkpoint = {};

  /// Emulates the format in the place of precision.compute, which is to be one of 16 bits: where
  /// the policy casts, values are rounded and stay FP32 (amp/emulation.h).
  std::optional<numerics::Format> emulate = {};

  /// Called with the events of a record, in their order.
  std::function<void(const record::Event&)> observe = {};
};

struct InspectedStep {
  int64_t step = 0;
  double loss = 0;  // nats a target
  double scale = 1;
  bool skipped = false;
  double time_s = 0;                // with looking, and
  double look_s = 0;                // looking alone
  monitor::NonfiniteOrigin origin;  // of the first value that is not finite; empty: all are
};

struct Inspection {
  std::vector<InspectedStep> steps;  // all that were trained
  int64_t looked_at = 0;             // of them, the last ones
  monitor::Ranges ranges;            // of those
};

/// Trains `options.steps` steps of a run and counts every value in them (monitor/range_recorder.h).
/// Steps at the beginning that a dynamic loss scale skips on its way down are trained and not
/// counted, unless it finds no scale in 24 of them. Updates are those of the FP32 masters.
/// Activations are kept, whatever train.recompute says: gradients are the same, and operations that
/// are called again would be seen twice. Writes nothing. A checkpoint may have been trained in
/// another precision that keeps FP32 parameters; the loss scale then begins anew. Throws
/// InvalidArgument for fewer steps than one and for an emulation that would have no effect, and
/// what reading a checkpoint throws.
MANTISSA_API Inspection inspect_run(const RunConfig& config, const InspectOptions& options = {});

}  // namespace mantissa::train
