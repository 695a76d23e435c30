#include "mantissa/ops/scratch.h"

#include "mantissa/base/error.h"

namespace mantissa::ops {

float* Scratch::of_size(int64_t size) {
  if (size > size_) {
    size_ = 0;
    memory_ = hwy::AllocateAligned<float>(static_cast<size_t>(size));
    MANTISSA_CHECK(memory_ != nullptr, Error, "memory: ", size * 4,
                   " bytes asked for to multiply matrices, and the system has none left; use a "
                   "smaller train.batch, train.microbatch, model or context");
    size_ = size;
  }
  return memory_.get();
}

}  // namespace mantissa::ops
