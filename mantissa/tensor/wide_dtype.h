#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

namespace mantissa::tensor {

/// The dtype for counts, rates and sums that FP32 is too narrow for: Double, or Float on MPS, which
/// has no FP64.
inline at::ScalarType wide_dtype(at::Device device) {
  return device.is_mps() ? at::kFloat : at::kDouble;
}

}  // namespace mantissa::tensor
