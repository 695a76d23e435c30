#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

namespace mantissa::amp {

/// `tensor` cast to `dtype`, from this thread's cache when it holds that cast. FP32 leaves that
/// require a gradient, which are the parameters, are cached when the cast is to 16 bits: as in
/// torch, all else is likely to be used once. An entry is used only while its source has the same
/// storage, layout and version, so a cached cast never differs from a new one; a write that
/// raises no version (through `.data()` or a raw pointer) is not seen.
/// A cached cast is recorded by autograd also under no_grad and in inference mode, because a later
/// call of the region may need its gradient.
///
/// With `sums_gradients_in_fp32` the uses of a cached cast share its numbers only: each has a
/// backward of its own that casts its gradient back, so that they add up in FP32. Without, they
/// share the cast whole, as in torch, and add up in `dtype`: after 256 equal terms a BF16 sum stops
/// growing.
///
/// Of an expanded tensor the numbers that exist are cast, and the result is expanded.
at::Tensor cast_through_cache(const at::Tensor& tensor, at::ScalarType dtype,
                              bool sums_gradients_in_fp32);

}  // namespace mantissa::amp
