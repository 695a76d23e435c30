#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "mantissa/ops/cpu/blocks.h"
#include "mantissa/ops/scratch.h"

namespace mantissa::ops {

/// A contiguous CPU tensor in FP32, BF16 or FP16, read and written a block of FP32 numbers at a
/// time.
class TensorBlocks {
 public:
  explicit TensorBlocks(const at::Tensor& tensor)
      : tensor_(tensor), dtype_(tensor.defined() ? tensor.scalar_type() : at::kFloat) {}

  // Null of an undefined tensor.
  const float* read(int64_t first, int64_t count, Scratch& scratch) const {
    if (!tensor_.defined()) {
      return nullptr;
    }
    float* buffer = dtype_ == at::kFloat ? nullptr : scratch.of_size(count);
    return cpu::widen(tensor_.const_data_ptr(), dtype_, first, count, buffer);
  }

  // Where the numbers of a block are to be put before they are stored.
  float* place(int64_t first, int64_t count, Scratch& scratch) const {
    return dtype_ == at::kFloat ? tensor_.mutable_data_ptr<float>() + first
                                : scratch.of_size(count);
  }
  void store(int64_t first, int64_t count, const float* numbers) const {
    if (dtype_ != at::kFloat) {
      cpu::narrow(numbers, tensor_.mutable_data_ptr(), dtype_, first, count);
    }
  }

 private:
  const at::Tensor tensor_;
  const at::ScalarType dtype_;
};

}  // namespace mantissa::ops
