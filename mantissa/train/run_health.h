#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/monitor/skip_reason.h"
#include "mantissa/monitor/twin.h"
#include "mantissa/optim/optimizer.h"
#include "mantissa/train/next_steps.h"
#include "mantissa/train/run_config.h"

namespace mantissa::train {

/// What is wrong with a run. The text of an enumerator is its name.
enum class Ailment : uint8_t {
  none,
  nonfinite,       // a step cannot be applied
  dead_gradients,  // half of the gradient of a parameter or more is 0 where FP32 has it
  lost_updates,    // updates of 16-bit parameters that change nothing: Optimizer::lost_updates()
};

MANTISSA_API std::string_view to_string(Ailment ailment);

/// Of the next steps of a run.
struct RunHealth {
  Ailment ailment = Ailment::none;  // the first that holds
  int64_t steps = 0;                // applied
  double scale = 1;                 // of the loss of the last step
  std::optional<FailedStep> failed;
  std::vector<monitor::TwinRow> dead;    // parameters, when no step failed, in 16 bits
  std::vector<optim::LostUpdates> lost;  // of the last step
};

/// Trains the next steps of a run and says what is wrong with them: why a step failed, with
/// operation, scope, input and bases; or, when none did, which gradients died by underflow at the
/// last one (against its FP32 twin), or which updates are lost. A loss that stalls without any NaN
/// is often one of these two. Writes nothing. Throws as NextSteps does.
MANTISSA_API RunHealth examine_run(const RunConfig& config, const NextStepsOptions& options = {});

/// The same for steps that are at hand, under a configuration that differs from theirs in
/// precision or scale.
MANTISSA_API RunHealth examine_steps(const NextSteps& steps, const RunConfig& config);

/// A line for each thing that is wrong, with what to do about it; one for a run that is well.
MANTISSA_API std::vector<std::string> describe(const RunHealth& health);

}  // namespace mantissa::train
