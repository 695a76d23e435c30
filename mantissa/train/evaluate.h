#pragma once

#include <cstdint>
#include <memory>

#include "mantissa/base/api.h"
#include "mantissa/data/dataset.h"
#include "mantissa/data/evaluation.h"
#include "mantissa/train/step.h"

namespace mantissa::train {

struct EvaluationResult {
  double loss = 0;           // nats a target
  double bits_per_base = 0;  // loss / ln 2: one token is one base
  int64_t num_targets = 0;
};

/// The model's loss on `dataset`, each window of the pass once, in a fixed order, without
/// gradients and dropout, summed in double. The precision is that of `parts`; with an average of
/// the weights (parts.ema) it is the average that is evaluated.
MANTISSA_API EvaluationResult evaluate(const StepParts& parts,
                                       std::shared_ptr<const data::Dataset> dataset,
                                       const data::EvaluationOptions& options);

}  // namespace mantissa::train
