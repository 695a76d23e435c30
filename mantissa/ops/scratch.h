#pragma once

#include <cstdint>

#include <hwy/aligned_allocator.h>

namespace mantissa::ops {

/// Floats for work under way, aligned for vectors. They are kept from call to call, for fresh
/// memory costs page faults, and grow to the largest size asked for.
class Scratch {
 public:
  /// `size` floats with any contents. Throws Error when there is no memory.
  float* of_size(int64_t size);

 private:
  hwy::AlignedFreeUniquePtr<float[]> memory_;
  int64_t size_ = 0;
};

}  // namespace mantissa::ops
