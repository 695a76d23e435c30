// Convolutions and their gradients in 16 bits.
#include <array>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/randn.h>

#include "bench/row.h"
#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/tensor/dtype.h"

namespace mantissa::bench {
namespace {

using numerics::Format;
using ops::CpuKernels;

struct Shape {
  std::string name;
  std::vector<int64_t> input;
  std::vector<int64_t> weight;
  int64_t groups;
};

const Shape kConv1d = {"conv1d 256 k5", {8, 256, 2048}, {256, 256, 5}, 1};
const Shape kConv2d = {"conv2d 64 k3", {8, 64, 56, 56}, {64, 64, 3, 3}, 1};
const Shape kPointwise = {"conv1d 512 k1", {8, 512, 2048}, {256, 512, 1}, 1};
const Shape kDepthwise = {"depthwise 256 k3", {8, 256, 4096}, {256, 1, 3}, 256};
const Shape kLongDepthwise = {"depthwise 256 k7", {8, 256, 4096}, {256, 1, 7}, 256};

enum class Pass : uint8_t { forward, backward, both };

Action passes(Pass pass, const Shape& shape, Format format, CpuKernels kernels) {
  const at::ScalarType dtype = tensor::dtype_of(format);
  const at::Tensor input = at::randn(shape.input).to(dtype);
  const at::Tensor weight = at::randn(shape.weight).to(dtype);
  const size_t axes = shape.input.size() - 2;
  const std::vector<int64_t> ones(axes, 1);
  const std::vector<int64_t> padding(axes, shape.weight.back() / 2);
  const std::vector<int64_t> none(axes, 0);
  const auto forward = [=, groups = shape.groups] {
    return at::convolution(input, weight, {}, ones, padding, ones, false, none, groups);
  };
  at::Tensor gradient;
  {
    const at::NoGradGuard no_grad;
    gradient = at::randn(forward().sizes()).to(dtype);
  }
  return [=, groups = shape.groups] {
    const at::NoGradGuard no_grad;
    const ops::CpuKernelsGuard guard(kernels);
    if (pass != Pass::backward) {
      forward();
    }
    if (pass != Pass::forward) {
      at::convolution_backward(gradient, input, weight, std::nullopt, ones, padding, ones, false,
                               none, groups, std::array{true, true, false});
    }
  };
}

Figure figure(const std::string& name, const std::string& meaning, Pass pass,
              const std::vector<Shape>& shapes, Format peer_format, const Bars& bars) {
  Figure result{.name = "convolutions/" + name,
                .meaning = meaning,
                .rows = {{"worst", Summary::worst, bars}}};
  for (const Shape& shape : shapes) {
    result.cases.push_back(timed(shape.name, [=] {
      return Contest{passes(pass, shape, Format::bf16, ops::cpu_kernels()),
                     passes(pass, shape, peer_format, CpuKernels::stock)};
    }));
  }
  return result;
}

std::vector<Figure> figures(const Setup&) {
  const std::vector<Shape> dense = {kConv1d, kConv2d, kPointwise};
  return {figure("libtorch/forward", "BF16 dense convolutions against BF16 of LibTorch, forward",
                 Pass::forward, dense, Format::bf16, {.avx2 = {10, 50}}),
          figure("libtorch/backward", "BF16 dense convolutions against BF16 of LibTorch, backward",
                 Pass::backward, dense, Format::bf16, {.avx2 = {5, 10}}),
          figure("libtorch-fp32",
                 "BF16 dense convolutions against FP32 of LibTorch, forward and backward",
                 Pass::both, dense, Format::fp32, {}),
          figure("depthwise",
                 "BF16 depthwise convolutions against FP32 of LibTorch, forward and backward",
                 Pass::both, {kDepthwise, kLongDepthwise}, Format::fp32, {.avx2 = {1, 3}})};
}

const Subject subject("convolutions", figures);

}  // namespace
}  // namespace mantissa::bench
