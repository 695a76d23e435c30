#include "mantissa/ops/convolution.h"

#include <array>
#include <optional>
#include <tuple>

#include <ATen/ops/convolution_backward_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/convolution_compositeexplicitautograd_dispatch.h>
#include <torch/library.h>

#include "mantissa/ops/compute_path.h"

namespace mantissa::ops {
namespace {

using at::IntArrayRef;
using at::Tensor;

namespace stock = at::compositeexplicitautograd;

Tensor convolution(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                   IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, bool transposed,
                   IntArrayRef output_padding, int64_t groups) {
  const bool has_bias = bias.has_value() && bias->defined();
  const ComputePath path = compute_path({input.scalar_type(), weight.scalar_type(),
                                         has_bias ? bias->scalar_type() : input.scalar_type()});
  if (path == ComputePath::stock) {
    return stock::convolution(input, weight, bias, stride, padding, dilation, transposed,
                              output_padding, groups);
  }
  const std::optional<Tensor> wide_bias =
      has_bias ? std::optional(addend(*bias)) : std::optional<Tensor>();
  return stock::convolution(factor(path, input), factor(path, weight), wide_bias, stride, padding,
                            dilation, transposed, output_padding, groups)
      .to(input.scalar_type());
}

// The bias's gradient: a sum over all but the channels, in FP32.
Tensor bias_gradient(const Tensor& grad_output) {
  std::vector<int64_t> dims;
  for (int64_t dim = 0; dim < grad_output.dim(); ++dim) {
    if (dim != 1) {
      dims.push_back(dim);
    }
  }
  return addend(grad_output).sum(dims);
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(const Tensor& grad_output,
                                                        const Tensor& input, const Tensor& weight,
                                                        at::OptionalIntArrayRef bias_sizes,
                                                        IntArrayRef stride, IntArrayRef padding,
                                                        IntArrayRef dilation, bool transposed,
                                                        IntArrayRef output_padding, int64_t groups,
                                                        std::array<bool, 3> output_mask) {
  const ComputePath path =
      compute_path({grad_output.scalar_type(), input.scalar_type(), weight.scalar_type()});
  if (path == ComputePath::stock) {
    return stock::convolution_backward(grad_output, input, weight, bias_sizes, stride, padding,
                                       dilation, transposed, output_padding, groups, output_mask);
  }
  Tensor grad_input;
  Tensor grad_weight;
  Tensor grad_bias;
  if (output_mask[0] || output_mask[1]) {
    std::tie(grad_input, grad_weight, std::ignore) = stock::convolution_backward(
        factor(path, grad_output), factor(path, input), factor(path, weight), std::nullopt, stride,
        padding, dilation, transposed, output_padding, groups,
        {output_mask[0], output_mask[1], false});
  }
  if (output_mask[2]) {
    grad_bias = bias_gradient(grad_output);  // no product, so TF32 does not round it
  }
  const auto narrow = [&](const Tensor& gradient) {
    return gradient.defined() ? gradient.to(input.scalar_type()) : gradient;
  };
  return {narrow(grad_input), narrow(grad_weight), narrow(grad_bias)};
}

}  // namespace

void register_convolution(torch::Library& library) {
  library.impl("convolution", &convolution);
  library.impl("convolution_backward", &convolution_backward);
}

}  // namespace mantissa::ops
