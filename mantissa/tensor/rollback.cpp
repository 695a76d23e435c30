#include "mantissa/tensor/rollback.h"

#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/where.h>

#include "mantissa/base/error.h"

namespace mantissa::tensor {

Rollback::Rollback(std::vector<at::Tensor> tensors) : tensors_(std::move(tensors)) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& tensor : tensors_) {
    MANTISSA_CHECK(tensor.defined(), InvalidArgument,
                   "Rollback: a tensor is undefined; leave it out");
    remembered_.push_back(tensor.detach().clone());
  }
}

void Rollback::remember() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    remembered_[i].copy_(tensors_[i]);
  }
}

void Rollback::undo_if(const at::Tensor& found_inf) const {
  MANTISSA_CHECK(found_inf.numel() == 1, InvalidArgument, "undo_if: found_inf has shape ",
                 found_inf.sizes(), "; pass the one value of the step");
  const at::NoGradGuard no_grad;
  const at::Tensor undo = found_inf.reshape({}).ne(0);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    // Not arithmetic: an infinity times zero would stay.
    tensors_[i].copy_(at::where(undo, remembered_[i], tensors_[i]));
  }
}

}  // namespace mantissa::tensor
