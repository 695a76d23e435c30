#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "mantissa/base/error.h"
#include "mantissa/ops/cuda/kernels.h"

/// Tensors as the kernels of a device see them.
namespace mantissa::ops::device {

inline cuda::Storage storage_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return cuda::Storage::fp32;
    case at::kBFloat16:
    case at::kShort:
      return cuda::Storage::bf16;
    default:
      MANTISSA_ASSERT(dtype == at::kHalf);
      return cuda::Storage::fp16;
  }
}

/// Whether a thread may read kVector elements of it at once; also of an undefined tensor.
inline bool is_aligned(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return true;
  }
  const auto address = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  return address % (cuda::kVector * tensor.element_size()) == 0;
}

/// Of a 0-d FP32 tensor; null when it is undefined.
inline const float* scalar_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<float>() : nullptr;
}

/// Appends a tensor of `numel` elements, which a grid works on in pieces of `piece`, to a
/// GradientList or an UpdateList.
template <typename List, typename Entry>
void append(List& list, const Entry& entry, int64_t numel, int64_t piece) {
  list.tensors[list.size] = entry;
  list.first_piece[list.size + 1] =
      list.first_piece[list.size] + static_cast<int32_t>(cuda::pieces_of(numel, piece));
  ++list.size;
}

}  // namespace mantissa::ops::device
