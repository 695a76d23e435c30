#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"
#include "mantissa/data/dataset.h"

namespace mantissa::data {

/// B windows of T tokens.
struct Batch {
  at::Tensor tokens;   // (B, T), int64, on the CPU
  at::Tensor targets;  // (B, T), int64; kIgnore where nothing is to be predicted
  uint64_t index = 0;  // of the first sample over the batch size; or within an evaluation pass
  std::vector<Position> positions;  // B
};

/// A batch before it is tensors. Threads fill these, because plain memory is all they then touch.
struct BatchBuffer {
  std::vector<int64_t> tokens;
  std::vector<int64_t> targets;
  std::vector<Position> positions;
};

/// Fills a buffer with the given samples.
MANTISSA_API BatchBuffer fill_buffer(const Dataset& dataset, const std::vector<Sample>& samples);

/// Copies a buffer into tensors.
MANTISSA_API Batch make_batch(BatchBuffer buffer, uint64_t index);

}  // namespace mantissa::data
