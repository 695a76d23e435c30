#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"

namespace mantissa::ops {

enum class Tf32 : uint8_t { off, on };

/// While it lives, FP32 products, convolutions and attention of this thread on the CPU compute as
/// a TF32 tensor core does: factors are rounded to a 10-bit fraction (to nearest, ties to even,
/// as `numerics::Format::tf32`; range and subnormals of FP32 exponents are kept), products are
/// summed in FP32, addends (the bias, `beta * self`) are not rounded. It emulates the numbers, not
/// the speed. Independent of `CpuKernels`, which is about 16-bit operands.
///
/// Inside attention the queries, keys, values and incoming gradients are rounded; the
/// probabilities, which LibTorch's fused kernel never stores, stay FP32.
///
///     const Tf32Guard tf32(Tf32::on);
///     Tensor loss = model(batch);
///     loss.backward();
///
/// Keep it over forward and backward. The flag is of the thread: LibTorch runs backward of CPU
/// tensors on the thread that calls it. Guards nest; the inner one holds.
class MANTISSA_API Tf32Guard {
 public:
  /// Throws InvalidArgument for `on` while the CPU kernels are not installed.
  explicit Tf32Guard(Tf32 tf32);
  ~Tf32Guard();

  Tf32Guard(const Tf32Guard&) = delete;
  Tf32Guard& operator=(const Tf32Guard&) = delete;

 private:
  Tf32 before_;
};

/// Of this thread.
MANTISSA_API Tf32 tf32();

/// A rounded copy, of the same strides where those are dense. FP32 on the CPU, any layout; NaN
/// stays NaN, values beyond the largest TF32 number become infinite. Not recorded by autograd.
MANTISSA_API at::Tensor round_to_tf32(const at::Tensor& tensor);

}  // namespace mantissa::ops
