#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/numerics/format.h"
#include "mantissa/tensor/memory.h"
#include "mantissa/train/run_config.h"

namespace mantissa::train {

/// What a training step of a run takes, on one device that holds all of the model. Bytes.
struct Footprint {
  int64_t parameters = 0;  // their number

  // Kept from step to step.
  int64_t weights = 0;
  int64_t masters = 0;
  int64_t moments = 0;
  int64_t average = 0;    // optim.ema
  int64_t gradients = 0;  // once backward is done, with FP32 sums over microbatches
  int64_t data = 0;       // tokens and targets of all sequences of a step

  /// Of the most that is gathered and reduced as one: a block, or the embedding and the last norm.
  int64_t unit_weights = 0;  // in the format that products read
  int64_t unit_gradients = 0;

  int64_t passes = 1;                        // forward passes of a step
  std::map<numerics::Format, double> flops;  // of a step, by the format of the factors
  double allocated = 0;  // of all tensors that a step makes, added up: each is written and read

  /// Of the live bytes, in order, from before there was a weight. The step begins at the place
  /// `step`; everything before is of the state.
  std::vector<tensor::memory::Change> changes;
  size_t step = 0;
};

/// Runs the step of such a run, with tensor::ShapesOnly: nothing is computed and no weight drawn,
/// no genome is read. It takes milliseconds for a small model and well below a second for a large
/// one. Of more than two microbatches it runs two. Installs the counting allocator; have the CPU
/// kernels installed (ops::install_cpu_kernels) as a run would, and no tensors in other threads.
MANTISSA_API Footprint footprint(const RunConfig& config);

}  // namespace mantissa::train
