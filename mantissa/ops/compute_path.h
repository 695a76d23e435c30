#pragma once

#include <cstdint>
#include <initializer_list>

#include <ATen/core/Tensor.h>

#include "mantissa/numerics/format.h"
#include "mantissa/ops/install_cpu_kernels.h"

namespace mantissa::ops {

/// How one product, convolution or attention is computed. It is decided once a call, so that a
/// switch thrown by another thread meanwhile never changes a call half-way.
enum class ComputePath : uint8_t {
  stock,  // LibTorch's kernel for these dtypes, with its own checks and messages
  widen,  // BF16 or FP16 to FP32, FP32 product, one rounding
  tf32,   // FP32 rounded to TF32, FP32 product
};

/// `dtypes` are those of all operands and outputs. Mixed ones are left to LibTorch.
ComputePath compute_path(std::initializer_list<at::ScalarType> dtypes,
                         CpuWork work = CpuWork::products);

/// Whether factors in `format` (bf16, fp16) are to be widened at this moment.
bool widens(numerics::Format format, CpuWork work = CpuWork::products);

/// The format in which our kernels read a factor of `dtype` (Float, BFloat16, Half).
numerics::Format factor_format(ComputePath path, at::ScalarType dtype);

/// `matrix`, or matrices, whose rows or columns are contiguous: itself or a copy.
at::Tensor in_lines(const at::Tensor& matrix);

/// What the FP32 kernel multiplies in place of `tensor`.
at::Tensor factor(ComputePath path, const at::Tensor& tensor);

/// What the FP32 kernel adds: never rounded, for an accumulator is FP32 also under TF32.
at::Tensor addend(const at::Tensor& tensor);

/// Resizes `out` as LibTorch does and rounds `result` into it.
at::Tensor& store(const at::Tensor& result, at::Tensor& out);

}  // namespace mantissa::ops
