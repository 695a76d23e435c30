#include "mantissa/ops/gradient_pass.h"

#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>

#include "mantissa/ops/device/arrays.h"
#include "mantissa/ops/device_kernels.h"
#include "mantissa/ops/update_checks.h"

namespace mantissa::ops {
namespace {

// Dense, as gradient_pass reads them, and not empty.
std::vector<at::Tensor> readable(at::TensorList gradients, at::Device device) {
  std::vector<at::Tensor> result;
  for (size_t i = 0; i < gradients.size(); ++i) {
    check_gradient(gradients[i], device, Place("gradient_pass", "gradient", i));
    if (gradients[i].numel() > 0) {
      const at::Tensor dense = to_strided(gradients[i]);
      result.push_back(dense.is_non_overlapping_and_dense() ? dense : dense.contiguous());
    }
  }
  return result;
}

GradientPass by_kernels(const DeviceKernels& kernels, at::TensorList gradients,
                        const at::Tensor& scale, at::Device device) {
  check_scalar(scale, device, "scale", "gradient_pass");
  const std::vector<at::Tensor> tensors = readable(gradients, device);
  const c10::DeviceGuard guard(device);
  void* const stream = kernels.current_stream(device);
  int64_t pieces = 0;
  for (const at::Tensor& tensor : tensors) {
    pieces += cuda::pieces_of(tensor.numel(), cuda::kGradientPiece);
  }
  const auto options = at::TensorOptions().device(device);
  const at::Tensor sums = at::empty({pieces}, options.dtype(at::kDouble));
  GradientPass result = {at::empty({}, options.dtype(at::kFloat)),
                         at::empty({}, options.dtype(at::kFloat))};
  auto* next = sums.mutable_data_ptr<double>();
  for (size_t begin = 0; begin < tensors.size(); begin += cuda::GradientList::kMost) {
    cuda::GradientList list = {};
    list.scale = device::scalar_of(scale);
    list.sums = next;
    for (size_t i = begin; i < tensors.size() && list.size < cuda::GradientList::kMost; ++i) {
      const at::Tensor& tensor = tensors[i];
      const cuda::GradientTensor entry = {tensor.const_data_ptr(), tensor.numel(),
                                          device::storage_of(tensor.scalar_type()),
                                          device::is_aligned(tensor)};
      device::append(list, entry, tensor.numel(), cuda::kGradientPiece);
    }
    check_launch(kernels, kernels.functions->gradient_sums(list, stream), "gradient_pass");
    next += list.first_piece[list.size];
  }
  const cuda::GradientSums all = {sums.const_data_ptr<double>(), pieces, device::scalar_of(scale),
                                  result.found_inf.mutable_data_ptr<float>(),
                                  result.norm.mutable_data_ptr<float>()};
  check_launch(kernels, kernels.functions->gradient_conclusion(all, stream), "gradient_pass");
  return result;
}

}  // namespace

GradientPass gradient_pass_enqueued(at::TensorList gradients, const at::Tensor& scale,
                                    at::Device device) {
  const at::NoGradGuard no_grad;
  const DeviceKernels* kernels = device_kernels(device);
  return kernels == nullptr ? gradient_pass_composed(gradients, scale, device)
                            : by_kernels(*kernels, gradients, scale, device);
}

}  // namespace mantissa::ops
