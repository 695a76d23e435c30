#pragma once

#include <cstdint>

#include <hwy/aligned_allocator.h>

namespace mantissa::ops {

/// FP32 numbers that a kernel works on, aligned for vectors. A thread keeps its own from call to
/// call, since fresh memory costs page faults.
class Scratch {
 public:
  /// At least `size` numbers of any values; what was returned before is invalid. Throws Error when
  /// there is no memory left.
  float* of_size(int64_t size);

 private:
  hwy::AlignedFreeUniquePtr<float[]> memory_;
  int64_t size_ = 0;
};

}  // namespace mantissa::ops
