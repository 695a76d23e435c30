#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/amp/policy.h"
#include "mantissa/base/api.h"
#include "mantissa/train/assembly.h"
#include "mantissa/train/run_config.h"
#include "mantissa/train/step.h"

namespace mantissa::train {

struct NextStepsOptions {
  int64_t steps = 1;
  std::filesystem::path checkpoint = {};  // where to begin: see begin_at(); empty: the beginning
};

/// A step that could not be applied, for another reason than a loss scale on its way down.
struct FailedStep {
  int64_t step = 0;  // of the run, from 1
  StepReport report;
  std::string why;    // one line; empty where it was not asked for
  std::string bases;  // of the sequence, or of the first of several, that show it: `chrI:1-128`
};

/// The same run under another policy.
MANTISSA_API RunConfig with_policy(const RunConfig& config, const amp::Policy& policy);

/// The next steps of a run, to be trained again and again under other policies: from the same
/// weights on the same batches.
class MANTISSA_API NextSteps {
 public:
  /// Throws InvalidArgument for fewer steps than one, and what opening data and checkpoints throws.
  NextSteps(const RunConfig& config, NextStepsOptions options);

  /// With train.microbatch decided and train.recompute none.
  const RunConfig& config() const { return config_; }
  const RunData& data() const { return data_; }
  int64_t num_steps() const { return options_.steps; }
  int64_t first_step() const { return steps_done_ + 1; }  // of the run, from 1

  /// A learner of `config` at the first of the steps.
  std::unique_ptr<Learner> learner(const RunConfig& config) const;

  /// The microbatches of each.
  const std::vector<std::vector<data::Batch>>& batches() const { return batches_; }

  /// Trains the first `count` of the steps until one fails. A step that a dynamic loss scale skips
  /// on its way down is tried again, up to 24 times: the scale is then where it would be later.
  /// With `config.train.explain_skips` a failure is explained. `applied`, where given, sees the
  /// report of each step that was applied.
  std::optional<FailedStep> train(Learner& learner, const RunConfig& config, int64_t count,
                                  const std::function<void(const StepReport&)>& applied = {}) const;

 private:
  RunData data_;
  RunConfig config_;
  NextStepsOptions options_;
  int64_t steps_done_ = 0;
  std::vector<std::vector<data::Batch>> batches_;
};

}  // namespace mantissa::train
