#include "mantissa/ops/composed/linear_cross_entropy.h"

#include <algorithm>

#include <ATen/ops/empty.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>

#include "mantissa/ops/device/arrays.h"
#include "mantissa/ops/device_kernels.h"
#include "mantissa/tensor/dtype.h"

namespace mantissa::ops::composed {
namespace {

using at::Tensor;

// In FP32, or FP64 of FP64 factors.
Tensor product(const Tensor& a, const Tensor& b) {
  if (!tensor::is_16bit(a.scalar_type())) {
    return at::mm(a, b);
  }
  if (a.is_cuda()) {
    return at::mm(a, b, at::kFloat);
  }
  // In FP16, sums beyond 65504 would be infinite.
  return a.scalar_type() == at::kHalf ? at::mm(a.to(at::kFloat), b.to(at::kFloat))
                                      : at::mm(a, b).to(at::kFloat);
}

struct RowsOfLogits {
  Tensor logits;   // (n, V), FP32 or FP64, contiguous; gradients may take their place
  Tensor targets;  // (n) int64
  const LinearCrossEntropyOptions& options;
};

// Sum of the losses of rows, and the gradients of their logits.
struct Softmax {
  Tensor loss;       // 0-d
  Tensor gradients;  // times `lift`, in the dtype of factors; undefined where not wanted
  Tensor bias;       // their sum over the rows, not lifted; undefined where not wanted
};

struct Wanted {
  bool gradients;
  bool bias;
};

Softmax softmax_by_operations(const RowsOfLogits& rows, Wanted wanted, at::ScalarType dtype,
                              double lift) {
  const double smoothing = rows.options.label_smoothing;
  const Tensor& logits = rows.logits;
  const Tensor ignored = rows.targets.eq(rows.options.ignore_index).unsqueeze(1);
  const Tensor target = rows.targets.unsqueeze(1).masked_fill(ignored, 0);
  const Tensor log_of_sum = at::logsumexp(logits, {1}, /*keepdim=*/true);
  Tensor losses = log_of_sum.sub(logits.gather(1, target));
  if (smoothing != 0) {
    losses =
        losses.mul(1 - smoothing).add(log_of_sum.sub(logits.mean({1}, true)), /*alpha=*/smoothing);
  }
  Softmax result = {losses.masked_fill_(ignored, 0).sum(), {}, {}};
  if (!wanted.gradients) {
    return result;
  }
  const Tensor gradient = logits.sub_(log_of_sum).exp_();
  if (smoothing != 0) {
    gradient.sub_(smoothing / static_cast<double>(logits.size(1)));
  }
  gradient.scatter_(1, target, gradient.gather(1, target).sub_(1 - smoothing));
  gradient.masked_fill_(ignored, 0);
  if (wanted.bias) {
    result.bias = gradient.sum(0);
  }
  result.gradients = gradient.mul_(lift).to(dtype);
  return result;
}

Softmax softmax_by_kernel(const DeviceKernels& kernels, const RowsOfLogits& rows, Wanted wanted,
                          at::ScalarType dtype, double lift) {
  const Tensor& logits = rows.logits;
  const at::Device device = logits.device();
  const c10::DeviceGuard guard(device);
  const Tensor losses = at::empty({logits.size(0)}, logits.options().dtype(at::kDouble));
  Softmax result;
  cuda::CrossEntropyRows arguments = {};
  arguments.lift = 1;
  if (wanted.gradients) {
    // Sums for a bias are of gradients that are not rounded.
    result.gradients = wanted.bias || dtype == at::kFloat
                           ? logits
                           : at::empty(logits.sizes(), logits.options().dtype(dtype));
    arguments.gradients = result.gradients.mutable_data_ptr();
    arguments.gradient_storage = device::storage_of(result.gradients.scalar_type());
    arguments.lift = wanted.bias ? 1 : static_cast<float>(lift);
  }
  arguments.logits = logits.const_data_ptr<float>();
  arguments.rows = logits.size(0);
  arguments.classes = logits.size(1);
  arguments.targets = rows.targets.const_data_ptr<int64_t>();
  arguments.ignore_index = rows.options.ignore_index;
  arguments.smoothing = rows.options.label_smoothing;
  arguments.losses = losses.mutable_data_ptr<double>();
  check_launch(kernels, kernels.functions->cross_entropy(arguments, kernels.current_stream(device)),
               "linear_cross_entropy");
  result.loss = losses.sum();
  if (wanted.bias) {
    result.bias = logits.sum(0);
    result.gradients = logits.mul_(lift).to(dtype);
  }
  return result;
}

}  // namespace

LinearCrossEntropy linear_cross_entropy(const Tensor& input, const Tensor& weight,
                                        const std::optional<Tensor>& bias, const Tensor& targets,
                                        const LinearCrossEntropyOptions& options,
                                        const std::array<bool, 3>& wanted, int64_t chunk) {
  const at::ScalarType dtype = input.scalar_type();
  const at::TensorOptions wide =
      input.options().dtype(dtype == at::kDouble ? at::kDouble : at::kFloat);
  const DeviceKernels* kernels = dtype == at::kDouble ? nullptr : device_kernels(input.device());
  // A gradient of a logit is at most 1. In FP16 it is kept from underflow.
  const double lift = dtype == at::kHalf ? 0x1p13 : 1;
  const auto [of_input, of_weight, of_bias] = wanted;
  LinearCrossEntropy result;
  result.grad_input = of_input ? at::empty(input.sizes(), wide) : Tensor();
  result.grad_weight = of_weight ? at::zeros(weight.sizes(), wide) : Tensor();
  result.grad_bias = of_bias ? at::zeros({weight.size(0)}, wide) : Tensor();
  Tensor loss = at::zeros({}, kernels == nullptr ? wide : wide.dtype(at::kDouble));
  const Tensor dense_targets = targets.contiguous();
  for (int64_t begin = 0; begin < input.size(0); begin += chunk) {
    const int64_t rows = std::min(chunk, input.size(0) - begin);
    const Tensor x = input.narrow(0, begin, rows);
    Tensor logits = product(x, weight.t());
    if (bias) {
      logits.add_(bias->to(wide.dtype()));
    }
    const RowsOfLogits of_logits = {logits, dense_targets.narrow(0, begin, rows), options};
    const Wanted of_rows = {of_input || of_weight || of_bias, of_bias};
    const Softmax softmax = kernels == nullptr
                                ? softmax_by_operations(of_logits, of_rows, dtype, lift)
                                : softmax_by_kernel(*kernels, of_logits, of_rows, dtype, lift);
    loss.add_(softmax.loss);
    if (of_bias) {
      result.grad_bias.add_(softmax.bias);
    }
    if (of_input) {
      result.grad_input.narrow(0, begin, rows).copy_(product(softmax.gradients, weight));
    }
    if (of_weight) {
      result.grad_weight.add_(product(softmax.gradients.t(), x));
    }
  }
  Tensor share = at::ones({}, wide);
  if (options.reduction == at::Reduction::Mean) {
    const Tensor count = targets.ne(options.ignore_index).sum().to(wide.dtype());
    loss.div_(count);
    share = count.clamp_min(1).reciprocal();  // gradients of nothing are 0
  }
  result.loss = loss.to(wide.dtype());
  if (of_bias) {
    result.grad_bias.mul_(share);
  }
  share = share.mul(1 / lift);
  if (of_input) {
    result.grad_input.mul_(share);
  }
  if (of_weight) {
    result.grad_weight.mul_(share);
  }
  return result;
}

}  // namespace mantissa::ops::composed
