#include "mantissa/ops/composed/linear_cross_entropy.h"

#include <algorithm>

#include <ATen/ops/empty.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

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

}  // namespace

LinearCrossEntropy linear_cross_entropy(const Tensor& input, const Tensor& weight,
                                        const std::optional<Tensor>& bias, const Tensor& targets,
                                        const LinearCrossEntropyOptions& options,
                                        const std::array<bool, 3>& wanted, int64_t chunk) {
  const at::ScalarType dtype = input.scalar_type();
  const at::TensorOptions wide =
      input.options().dtype(dtype == at::kDouble ? at::kDouble : at::kFloat);
  const double smoothing = options.label_smoothing;
  const double classes = static_cast<double>(weight.size(0));
  // A gradient of a logit is at most 1. In FP16 it is kept from underflow.
  const double lift = dtype == at::kHalf ? 0x1p13 : 1;
  const auto [of_input, of_weight, of_bias] = wanted;
  LinearCrossEntropy result;
  result.loss = at::zeros({}, wide);
  result.grad_input = of_input ? at::empty(input.sizes(), wide) : Tensor();
  result.grad_weight = of_weight ? at::zeros(weight.sizes(), wide) : Tensor();
  result.grad_bias = of_bias ? at::zeros({weight.size(0)}, wide) : Tensor();
  const Tensor ignored = targets.eq(options.ignore_index).unsqueeze(1);
  const Tensor classes_of_rows = targets.unsqueeze(1).masked_fill(ignored, 0);
  for (int64_t begin = 0; begin < input.size(0); begin += chunk) {
    const int64_t rows = std::min(chunk, input.size(0) - begin);
    const Tensor x = input.narrow(0, begin, rows);
    const Tensor target = classes_of_rows.narrow(0, begin, rows);
    const Tensor without = ignored.narrow(0, begin, rows);
    Tensor logits = product(x, weight.t());
    if (bias) {
      logits.add_(bias->to(wide.dtype()));
    }
    const Tensor log_of_sum = at::logsumexp(logits, {1}, /*keepdim=*/true);
    Tensor losses = log_of_sum.sub(logits.gather(1, target));
    if (smoothing != 0) {
      losses = losses.mul(1 - smoothing)
                   .add(log_of_sum.sub(logits.mean({1}, true)), /*alpha=*/smoothing);
    }
    result.loss.add_(losses.masked_fill_(without, 0).sum());
    if (!of_input && !of_weight && !of_bias) {
      continue;
    }
    Tensor gradient = logits.sub_(log_of_sum).exp_();
    if (smoothing != 0) {
      gradient.sub_(smoothing / classes);
    }
    gradient.scatter_(1, target, gradient.gather(1, target).sub_(1 - smoothing));
    gradient.masked_fill_(without, 0);
    if (of_bias) {
      result.grad_bias.add_(gradient.sum(0));
    }
    gradient = gradient.mul_(lift).to(dtype);
    if (of_input) {
      result.grad_input.narrow(0, begin, rows).copy_(product(gradient, weight));
    }
    if (of_weight) {
      result.grad_weight.add_(product(gradient.t(), x));
    }
  }
  Tensor share = at::ones({}, wide);
  if (options.reduction == at::Reduction::Mean) {
    const Tensor count = ignored.logical_not().sum().to(wide.dtype());
    result.loss.div_(count);
    share = count.clamp_min(1).reciprocal();  // gradients of nothing are 0
  }
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
