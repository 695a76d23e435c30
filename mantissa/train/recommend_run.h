#pragma once

#include <optional>
#include <string>

#include "mantissa/base/api.h"
#include "mantissa/train/next_steps.h"
#include "mantissa/train/recommend.h"
#include "mantissa/train/run_config.h"
#include "mantissa/train/run_health.h"

namespace mantissa::train {

struct RunRecommendation {
  RunHealth health;                    // as the run is
  Recommendation cheapest;             // what cures it: a loss scale, a range, or a policy
  std::optional<Recommendation> kept;  // when that is no policy: one that cures it in this format
};

/// What cures the next steps of a run: see recommend(). Well is what examine_run finds nothing
/// wrong with, but for lost updates, which no policy cures; where no step failed, gradients that
/// died are looked for in every trial. A loss scale is tried for FP16 without a dynamic one. Throws
/// as NextSteps does.
MANTISSA_API RunRecommendation recommend_for_run(const RunConfig& config,
                                                 const NextStepsOptions& options = {},
                                                 const RecommendOptions& search = {});

/// The policy to write, with why as a comment above it: that which keeps the format of the run.
/// Nothing where none does.
MANTISSA_API std::optional<std::string> policy_file(const RunConfig& config,
                                                    const RunRecommendation& recommendation);

}  // namespace mantissa::train
