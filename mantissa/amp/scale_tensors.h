#pragma once

#include <array>
#include <utility>

#include <ATen/core/Tensor.h>

#include "mantissa/amp/scale_rule.h"
#include "mantissa/base/api.h"
#include "mantissa/tensor/state_dict.h"

namespace mantissa::amp {

/// A ScaleState as 0-d tensors on one device.
struct MANTISSA_API ScaleTensors {
  at::Tensor scale;           // FP32
  at::Tensor growth_tracker;  // int32
  at::Tensor overflows_left;  // int32
  at::Tensor settled;         // FP32
  at::Tensor skipped;         // int64
  at::Tensor skipped_in_row;  // int64

  ScaleTensors(const ScaleState& state, at::Device device);

  std::array<std::pair<const char*, at::Tensor>, 6> named() const;

  // Of tensors on the CPU.
  ScaleState read() const;
  void write(const ScaleState& state) const;

  /// What next_state() does, without a look at the device. `found_inf` and `model_fault` are 0-d or
  /// of one element: the step is skipped when the first is not 0, and the scale stays when the
  /// second is not either.
  void advance(const LossScalerOptions& options, const at::Tensor& found_inf,
               const at::Tensor& model_fault) const;
};

}  // namespace mantissa::amp
