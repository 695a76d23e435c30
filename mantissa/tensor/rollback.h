#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"

namespace mantissa::tensor {

/// Puts back what a forward pass has changed when its step is skipped: running statistics of batch
/// norm, counters, averages. A batch that overflows would otherwise leave an infinity in them that
/// shows only at evaluation, long after (pytorch#88474).
///
///     Rollback buffers(model->buffers());
///     for (...) {
///       buffers.remember();
///       // forward, backward, found_inf, optimizer step
///       buffers.undo_if(found_inf);
///     }
///
/// Costs a copy of each tensor. Nothing waits for the device.
class MANTISSA_API Rollback {
 public:
  /// Tensors of any dtype and device, which stay those of the model. Remembers their values.
  /// Throws InvalidArgument for an undefined one.
  explicit Rollback(std::vector<at::Tensor> tensors);

  /// The values that undo_if() puts back are those of now.
  void remember();

  /// Puts the remembered values back where `found_inf`, 0-d FP32 on the device of the tensors or on
  /// the CPU, is not 0.
  void undo_if(const at::Tensor& found_inf) const;

 private:
  std::vector<at::Tensor> tensors_;
  std::vector<at::Tensor> remembered_;
};

}  // namespace mantissa::tensor
