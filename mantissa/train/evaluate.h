#pragma once

#include <cstdint>
#include <memory>

#include "mantissa/base/api.h"
#include "mantissa/data/genome_dataset.h"
#include "mantissa/train/step.h"

namespace mantissa::train {

struct EvaluationResult {
  double loss = 0;           // nats a target
  double bits_per_base = 0;  // loss / ln 2: one token is one base
  int64_t num_targets = 0;
};

struct EvaluationOptions {
  int64_t batch = 32;   // sequences a forward pass
  int64_t windows = 0;  // at most so many, evenly spread over the data; 0: all
};

/// The model's loss on `dataset`, each window once, in a fixed order, without gradients, summed in
/// double. The precision is that of `parts`; with an average of the weights (parts.ema) it is the
/// average that is evaluated.
MANTISSA_API EvaluationResult evaluate(const StepParts& parts,
                                       std::shared_ptr<const data::Dataset> dataset,
                                       const EvaluationOptions& options);

}  // namespace mantissa::train
