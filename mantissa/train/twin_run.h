#pragma once

#include "mantissa/base/api.h"
#include "mantissa/monitor/twin.h"
#include "mantissa/train/next_steps.h"
#include "mantissa/train/run_config.h"

namespace mantissa::train {

struct TwinRun {
  int64_t step = 0;    // that was compared, from 1
  double scale = 1;    // of its loss
  std::string policy;  // of the step
  monitor::TwinReport report;
};

/// Trains a run and compares the first microbatch of the last of `options.steps` steps, forward and
/// backward, with its twin: the same weights, batch and policy with all formats FP32. A dynamic
/// loss scale is first lowered until gradients are finite, where one does that. Writes nothing.
/// Throws InvalidArgument for a run that computes in fp32 or tf32, and Error when a step before
/// fails.
MANTISSA_API TwinRun inspect_twin(const RunConfig& config, const NextStepsOptions& options = {});

/// The comparison alone, of a batch at a learner of `config`.
MANTISSA_API TwinRun compare_with_twin(const RunConfig& config, Learner& learner,
                                       const data::Batch& batch);

}  // namespace mantissa::train
