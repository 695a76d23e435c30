#pragma once

#include <cstdint>

#include <ATen/Parallel.h>

#include "mantissa/tensor/shapes_only.h"

namespace mantissa::ops {

/// at::parallel_for, which every loop of a kernel over numbers is to be in: with shapes only
/// (tensor/shapes_only.h) it calls nothing.
template <typename Call>
void parallel_for(int64_t begin, int64_t end, int64_t grain, const Call& call) {
  if (!tensor::is_shapes_only()) {
    at::parallel_for(begin, end, grain, call);
  }
}

}  // namespace mantissa::ops
