#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"

namespace mantissa::ops {

/// The rows of `table` (V, D) at `indices` (...), int64 or int32: (..., D).
///
/// The table is FP32, BF16 or FP16 (FP64: as ATen operations, as on other devices). The result is
/// of `dtype`; where nothing is given that is FP32, of an FP64 table FP64, and in an autocast
/// region whose policy lowers `embedding` its compute format. FP32 rows of a 16-bit table are
/// exact.
///
/// The gradient of a row is the FP32 sum of the gradients where it was read, rounded once to the
/// dtype of the table: in 256s by position, which are then added in order, so that it does not
/// depend on the number of threads. LibTorch adds up in the dtype of the table: sums of equal BF16
/// numbers stop at 256 of them. The row `padding_idx` gets no gradient; -1: all do. Gradients
/// cannot be differentiated once more.
///
/// The dispatcher's operation mantissa::embedding. Throws InvalidArgument for other shapes and
/// dtypes, and, on the CPU, for an index outside of the table (of FP64 tables at::embedding's own
/// error).
MANTISSA_API at::Tensor embedding(const at::Tensor& table, const at::Tensor& indices,
                                  int64_t padding_idx = -1,
                                  std::optional<at::ScalarType> dtype = {});

}  // namespace mantissa::ops
