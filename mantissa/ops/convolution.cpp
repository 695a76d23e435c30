#include "mantissa/ops/convolution.h"

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>

#include <ATen/core/Tensor.h>
#include <ATen/ops/convolution_backward_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/convolution_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "mantissa/ops/compute_path.h"
#include "mantissa/ops/window_sums.h"
#include "mantissa/tensor/dtype.h"

namespace mantissa::ops {
namespace {

using at::IntArrayRef;
using at::Tensor;
using numerics::Format;

namespace stock = at::compositeexplicitautograd;

/// A convolution takes the large image to the small one, a transposed one the small image to the
/// large one; a weight is (groups x small channels, large channels, kernel) for both.
struct Geometry {
  int64_t batch;
  int64_t groups;
  int64_t small_channels;  // a group
  int64_t large_channels;
  std::vector<int64_t> output;  // sizes
  std::array<int64_t, kAxes> small = {1, 1, 1};
  std::array<int64_t, kAxes> large = {1, 1, 1};
  std::array<int64_t, kAxes> kernel = {1, 1, 1};
  std::array<int64_t, kAxes> stride = {1, 1, 1};
  std::array<int64_t, kAxes> padding = {0, 0, 0};
  std::array<int64_t, kAxes> dilation = {1, 1, 1};
};

struct Arguments {
  IntArrayRef stride;
  IntArrayRef padding;
  IntArrayRef dilation;
  bool transposed;
  IntArrayRef output_padding;
  int64_t groups;
};

CpuWork work_of(const Tensor& weight, int64_t groups) {
  const bool one_channel = weight.dim() > 2 && weight.size(1) == 1 && weight.size(0) == groups;
  return one_channel ? CpuWork::depthwise : CpuWork::products;
}

// Nothing where LibTorch has a message for the arguments, or where there is nothing to add up.
std::optional<Geometry> geometry_of(const Tensor& input, const Tensor& weight,
                                    const Arguments& arguments) {
  const int64_t axes = input.dim() - 2;
  if (axes < 1 || axes > static_cast<int64_t>(kAxes) || weight.dim() != input.dim() ||
      input.numel() == 0 || weight.numel() == 0 || arguments.groups < 1 ||
      weight.size(0) % arguments.groups != 0) {
    return std::nullopt;
  }
  Geometry geometry;
  geometry.batch = input.size(0);
  geometry.groups = arguments.groups;
  geometry.small_channels = weight.size(0) / arguments.groups;
  geometry.large_channels = weight.size(1);
  const bool transposed = arguments.transposed;
  const auto channels = [&](bool small) {
    return geometry.groups * (small ? geometry.small_channels : geometry.large_channels);
  };
  if (input.size(1) != channels(transposed)) {
    return std::nullopt;
  }
  geometry.output = {geometry.batch, channels(!transposed)};
  for (int64_t i = 0; i < axes; ++i) {
    const auto of = [&](IntArrayRef list) {
      return std::ssize(list) == axes ? list[static_cast<size_t>(i)]
             : list.size() == 1       ? list[0]
                                      : -1;
    };
    const int64_t kernel = weight.size(i + 2);
    const int64_t stride = of(arguments.stride);
    const int64_t padding = of(arguments.padding);
    const int64_t dilation = of(arguments.dilation);
    const int64_t output_padding = of(arguments.output_padding);
    if (stride < 1 || padding < 0 || dilation < 1 || output_padding < 0 ||
        (transposed && output_padding >= std::max(stride, dilation))) {
      return std::nullopt;
    }
    const int64_t reach = dilation * (kernel - 1) + 1;
    const int64_t size = input.size(i + 2);
    const int64_t room = size + 2 * padding - reach;
    const int64_t output = transposed ? (size - 1) * stride - 2 * padding + reach + output_padding
                           : room < 0 ? 0
                                      : room / stride + 1;
    if (output < 1) {
      return std::nullopt;
    }
    geometry.output.push_back(output);
    const auto axis = static_cast<size_t>(i) + kAxes - static_cast<size_t>(axes);
    geometry.small[axis] = transposed ? size : output;
    geometry.large[axis] = transposed ? output : size;
    geometry.kernel[axis] = kernel;
    geometry.stride[axis] = stride;
    geometry.padding[axis] = padding;
    geometry.dilation[axis] = dilation;
  }
  return geometry;
}

std::array<int64_t, kAxes> strides_of(const Tensor& tensor) {
  std::array<int64_t, kAxes> strides = {0, 0, 0};
  for (int64_t dim = 2; dim < tensor.dim(); ++dim) {
    strides[static_cast<size_t>(dim - tensor.dim()) + kAxes] = tensor.stride(dim);
  }
  return strides;
}

Image image_of(const Tensor& tensor, Format format) {
  return {const_cast<void*>(tensor.const_data_ptr()), format, tensor.stride(0), tensor.stride(1),
          strides_of(tensor)};
}

// Axes along which windows, one for each position of the small image, slide over the large one.
Axes small_windows(const Geometry& geometry) {
  Axes axes;
  for (size_t i = 0; i < kAxes; ++i) {
    axes[i] = {geometry.large[i], geometry.small[i], geometry.stride[i], {}};
    for (int64_t k = 0; k < geometry.kernel[i]; ++k) {
      axes[i].taps.push_back({k, k * geometry.dilation[i] - geometry.padding[i]});
    }
  }
  return axes;
}

void add(WindowSums sums) {
  merge_axes(sums.axes, sums.source, sums.result);
  add_windows(sums);
}

void to_small(const Geometry& geometry, const Image& large, const Tensor& weight, Format format,
              const float* bias, const Image& small) {
  const int64_t rows = geometry.small_channels;
  add({{geometry.batch, geometry.groups, rows, geometry.large_channels},
       small_windows(geometry),
       large,
       {const_cast<void*>(weight.const_data_ptr()), format, rows * weight.stride(0),
        weight.stride(0), weight.stride(1), strides_of(weight)},
       bias,
       small});
}

// Position q of the large image takes tap k of position p of the small one where
// q = p stride - padding + k dilation: with q = j stride + r, windows j for each r.
void to_large(const Geometry& geometry, const Image& small, const Tensor& weight, Format format,
              const float* bias, const Image& large) {
  const int64_t channels = geometry.small_channels;
  WindowSums sums = {
      {geometry.batch, geometry.groups, geometry.large_channels, channels},
      {},
      small,
      {const_cast<void*>(weight.const_data_ptr()), format, channels * weight.stride(0),
       weight.stride(1), weight.stride(0), strides_of(weight)},
      bias,
      large};
  const auto set_axis = [&](size_t i, int64_t r) {
    Axis& axis = sums.axes[i];
    const int64_t stride = geometry.stride[i];
    axis = {geometry.small[i], (geometry.large[i] - r + stride - 1) / stride, 1, {}};
    for (int64_t k = 0; k < geometry.kernel[i]; ++k) {
      const int64_t distance = r + geometry.padding[i] - k * geometry.dilation[i];
      if (distance % stride == 0) {
        axis.taps.push_back({k, distance / stride});
      }
    }
    sums.result.strides[i] = large.strides[i] * stride;
    return r * large.strides[i];
  };
  const auto remainders = [&](size_t i) { return std::min(geometry.stride[i], geometry.large[i]); };
  const int64_t bytes = numerics::info(large.format).storage_bits / 8;
  for (int64_t r0 = 0; r0 < remainders(0); ++r0) {
    const int64_t depth = set_axis(0, r0);
    for (int64_t r1 = 0; r1 < remainders(1); ++r1) {
      const int64_t height = set_axis(1, r1);
      for (int64_t r2 = 0; r2 < remainders(2); ++r2) {
        const int64_t first = depth + height + set_axis(2, r2);
        sums.result.data = static_cast<char*>(large.data) + first * bytes;
        add(sums);
      }
    }
  }
}

void to_filter(const Geometry& geometry, const Image& large, const Image& small,
               const Tensor& grad_weight) {
  const int64_t rows = geometry.small_channels;
  FilterGradient gradient = {
      {geometry.batch, geometry.groups, rows, geometry.large_channels},
      small_windows(geometry),
      large,
      small,
      {grad_weight.mutable_data_ptr(), tensor::format_of(grad_weight.scalar_type()),
       rows * grad_weight.stride(0), grad_weight.stride(0), grad_weight.stride(1),
       strides_of(grad_weight)}};
  merge_axes(gradient.axes, gradient.source, gradient.sums);
  add_windows(gradient);
}

at::MemoryFormat layout_of(const Tensor& input, const Tensor& weight) {
  const at::MemoryFormat layout = input.suggest_memory_format();
  return layout == at::MemoryFormat::Contiguous ? weight.suggest_memory_format() : layout;
}

Tensor forward(ComputePath path, const Geometry& geometry, const Tensor& input,
               const Tensor& weight, const Tensor& bias, bool transposed) {
  Tensor out = at::empty(geometry.output, input.options(), layout_of(input, weight));
  const Tensor wide = bias.defined() ? addend(bias).contiguous() : bias;
  const auto pass = transposed ? &to_large : &to_small;
  const Format format = factor_format(path, input.scalar_type());
  pass(geometry, image_of(input, format), weight, format,
       wide.defined() ? wide.const_data_ptr<float>() : nullptr,
       image_of(out, tensor::format_of(out.scalar_type())));
  return out;
}

Tensor backward_by_input(ComputePath path, const Geometry& geometry, const Tensor& grad_output,
                         const Tensor& input, const Tensor& weight, bool transposed) {
  Tensor out = at::empty(input.sizes(), input.options(), layout_of(input, weight));
  const auto pass = transposed ? &to_small : &to_large;
  const Format format = factor_format(path, input.scalar_type());
  pass(geometry, image_of(grad_output, format), weight, format, nullptr,
       image_of(out, tensor::format_of(out.scalar_type())));
  return out;
}

Tensor backward_by_weight(ComputePath path, const Geometry& geometry, const Tensor& grad_output,
                          const Tensor& input, const Tensor& weight, bool transposed) {
  Tensor out = at::empty(weight.sizes(), weight.options(), layout_of(input, weight));
  const Format format = factor_format(path, input.scalar_type());
  const Image from = image_of(input, format);
  const Image to = image_of(grad_output, format);
  to_filter(geometry, transposed ? to : from, transposed ? from : to, out);
  return out;
}

// The bias's gradient: a sum over all but the channels. No product, so TF32 does not round it.
Tensor bias_gradient(const Tensor& grad_output) {
  Tensor sums = at::empty({grad_output.size(1)}, grad_output.options().dtype(at::kFloat)).zero_();
  if (grad_output.numel() > 0) {
    Axes axes;
    for (int64_t dim = 2; dim < grad_output.dim(); ++dim) {
      Axis& axis = axes[static_cast<size_t>(dim - grad_output.dim()) + kAxes];
      axis.source = axis.windows = grad_output.size(dim);
    }
    add_channels(image_of(grad_output, tensor::format_of(grad_output.scalar_type())), axes,
                 grad_output.size(0), grad_output.size(1), sums.mutable_data_ptr<float>());
  }
  return sums.to(grad_output.scalar_type());
}

Tensor convolution(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                   IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, bool transposed,
                   IntArrayRef output_padding, int64_t groups) {
  const Tensor addend_in = bias.value_or(Tensor());
  const ComputePath path =
      compute_path({input.scalar_type(), weight.scalar_type(),
                    addend_in.defined() ? addend_in.scalar_type() : input.scalar_type()},
                   work_of(weight, groups));
  if (path == ComputePath::stock) {
    return stock::convolution(input, weight, bias, stride, padding, dilation, transposed,
                              output_padding, groups);
  }
  const std::optional<Geometry> geometry =
      geometry_of(input, weight, {stride, padding, dilation, transposed, output_padding, groups});
  if (geometry &&
      (!addend_in.defined() || addend_in.sizes() == IntArrayRef(geometry->output).slice(1, 1))) {
    return forward(path, *geometry, input, weight, addend_in, transposed);
  }
  const std::optional<Tensor> wide_bias =
      addend_in.defined() ? std::optional(addend(addend_in)) : std::optional<Tensor>();
  return stock::convolution(factor(path, input), factor(path, weight), wide_bias, stride, padding,
                            dilation, transposed, output_padding, groups)
      .to(input.scalar_type());
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(const Tensor& grad_output,
                                                        const Tensor& input, const Tensor& weight,
                                                        at::OptionalIntArrayRef bias_sizes,
                                                        IntArrayRef stride, IntArrayRef padding,
                                                        IntArrayRef dilation, bool transposed,
                                                        IntArrayRef output_padding, int64_t groups,
                                                        std::array<bool, 3> output_mask) {
  const ComputePath path =
      compute_path({grad_output.scalar_type(), input.scalar_type(), weight.scalar_type()},
                   work_of(weight, groups));
  if (path == ComputePath::stock) {
    return stock::convolution_backward(grad_output, input, weight, bias_sizes, stride, padding,
                                       dilation, transposed, output_padding, groups, output_mask);
  }
  const std::optional<Geometry> geometry =
      geometry_of(input, weight, {stride, padding, dilation, transposed, output_padding, groups});
  Tensor grad_input;
  Tensor grad_weight;
  Tensor grad_bias;
  if (geometry && grad_output.sizes() == IntArrayRef(geometry->output)) {
    if (output_mask[0]) {
      grad_input = backward_by_input(path, *geometry, grad_output, input, weight, transposed);
    }
    if (output_mask[1]) {
      grad_weight = backward_by_weight(path, *geometry, grad_output, input, weight, transposed);
    }
  } else if (output_mask[0] || output_mask[1]) {
    std::tie(grad_input, grad_weight, std::ignore) = stock::convolution_backward(
        factor(path, grad_output), factor(path, input), factor(path, weight), std::nullopt, stride,
        padding, dilation, transposed, output_padding, groups,
        {output_mask[0], output_mask[1], false});
    const auto narrow = [&](const Tensor& gradient) {
      return gradient.defined() ? gradient.to(input.scalar_type()) : gradient;
    };
    grad_input = narrow(grad_input);
    grad_weight = narrow(grad_weight);
  }
  if (output_mask[2]) {
    grad_bias = bias_gradient(grad_output);
  }
  return {grad_input, grad_weight, grad_bias};
}

}  // namespace

void register_convolution(torch::Library& library) {
  library.impl("convolution", &convolution);
  library.impl("convolution_backward", &convolution_backward);
}

}  // namespace mantissa::ops
