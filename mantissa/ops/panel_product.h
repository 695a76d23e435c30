#pragma once

#include <cstdint>

#include "mantissa/base/api.h"
#include "mantissa/numerics/format.h"
#include "mantissa/ops/block_product.h"

namespace mantissa::ops {

/// A matrix of a product: element (i, j) is data[i * row_stride + j * col_stride]. One of the
/// strides is 1. bf16 and fp16 are patterns; fp32 are floats, tf32 floats that are rounded when
/// read.
struct Factor {
  const void* data;
  numerics::Format format;
  int64_t row_stride;
  int64_t col_stride;
};

/// beta * addend + alpha * (a b) in FP32, rounded once into `out`, which is row-major with
/// `row_stride` elements a row. `addend` is not read when beta is 0; a stride of 0 repeats its row.
struct ProductOutput {
  void* data;
  numerics::Format format;  // bf16, fp16 or fp32
  int64_t row_stride;
  float alpha = 1;
  float beta = 0;
  const void* addend = nullptr;  // in `format`
  int64_t addend_row_stride = 0;
};

/// The product of `a` (m x k) and `b` (k x n), none of which is 0.
///
/// Sums of `kProductDepth` terms are taken in order by fused multiply-adds in FP32, and added in
/// order: the result depends neither on the number of threads nor, where there are fused
/// multiply-adds, on the processor. Panels of the factors are widened on the way into the cache;
/// each thread keeps 8 MiB at most.
MANTISSA_API void panel_product(const Factor& a, const Factor& b, int64_t m, int64_t n, int64_t k,
                                const ProductOutput& out);

/// The same one element after the other, bit for bit where there are fused multiply-adds.
MANTISSA_API void panel_product_reference(const Factor& a, const Factor& b, int64_t m, int64_t n,
                                          int64_t k, const ProductOutput& out);

}  // namespace mantissa::ops
