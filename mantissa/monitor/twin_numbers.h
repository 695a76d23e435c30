#pragma once

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"
#include "mantissa/monitor/trace.h"
#include "mantissa/monitor/twin.h"

namespace mantissa::monitor {

/// Sets all that is of the two values alone; `value` is already divided by the scale. Both of one
/// shape.
MANTISSA_API void compare_values(TwinRow& row, const at::Tensor& value, const at::Tensor& reference,
                                 numerics::Format format);

/// |a - b| / |b|, L2 norms in FP64; 0 for equal ones, infinite where b is 0 and a is not, or where
/// a is not finite and b is.
MANTISSA_API double relative_error(const at::Tensor& a, const at::Tensor& b);

/// Sets own_error and bound of an operation that ran in 16 bits: calls it again in FP32, with the
/// generator as it is left again. Nothing for one that writes into its arguments.
void judge_own_error(TwinRow& row, const TracedCall& call);

}  // namespace mantissa::monitor
