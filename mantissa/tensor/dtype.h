#pragma once

#include <c10/core/ScalarType.h>

#include "mantissa/base/api.h"
#include "mantissa/numerics/format.h"

namespace mantissa::tensor {

/// The dtype that stores a format: fp32 and tf32 share Float.
MANTISSA_API at::ScalarType dtype_of(numerics::Format format);

/// The format of a dtype. Throws InvalidArgument for one that is not a training format (double,
/// integers).
MANTISSA_API numerics::Format format_of(at::ScalarType dtype);

/// BFloat16 or Half.
inline bool is_16bit(at::ScalarType dtype) { return dtype == at::kBFloat16 || dtype == at::kHalf; }

/// Float, BFloat16, Half or Double: what models compute in.
inline bool is_training_dtype(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kDouble || is_16bit(dtype);
}

}  // namespace mantissa::tensor
