#pragma once

#include "mantissa/base/api.h"
#include "mantissa/monitor/lint.h"
#include "mantissa/train/run_config.h"

namespace mantissa::train {

/// Lints the first training step of a run: its model, policy and data, all microbatches, backward
/// and the update. With a dynamic loss scale that is the first step which is not skipped, because a
/// scale that begins too high is no hazard: it comes down. Nothing is written.
MANTISSA_API monitor::LintReport lint_run(const RunConfig& config);

}  // namespace mantissa::train
