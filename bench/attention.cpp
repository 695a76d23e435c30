// Attention and its gradients: that of the step, wider heads, more tokens.
#include <string>
#include <tuple>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/randn.h>

#include "bench/row.h"
#include "mantissa/base/error.h"
#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/tensor/dtype.h"

namespace mantissa::bench {
namespace {

using numerics::Format;
using ops::CpuKernels;

struct Shape {
  std::string name;
  int64_t batch;
  int64_t heads;
  int64_t tokens;
  int64_t width;  // of a head
  bool causal;

  // Two products forward and five backward; of half of all scores when causal.
  double flops() const {
    return (causal ? 7.0 : 14.0) * static_cast<double>(batch * heads * tokens * tokens * width);
  }
};

const Shape kOfTheStep = {"512 causal", 8, 4, 512, 64, true};
const Shape kWide = {"1024, heads of 128", 2, 4, 1024, 128, false};
const Shape kLong = {"4096 causal", 1, 4, 4096, 64, true};

Action both_passes(const Shape& shape, Format format, CpuKernels kernels) {
  const auto heads = [&] {
    return at::randn({shape.batch, shape.tokens, shape.heads, shape.width})
        .to(tensor::dtype_of(format))
        .transpose(1, 2);
  };
  const at::Tensor query = heads();
  const at::Tensor key = heads();
  const at::Tensor value = heads();
  const at::Tensor gradient = heads();
  return [=, causal = shape.causal] {
    const at::NoGradGuard no_grad;
    const ops::CpuKernelsGuard guard(kernels);
    const auto [out, logsumexp] =
        at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, 0, causal);
    at::_scaled_dot_product_flash_attention_for_cpu_backward(gradient, query, key, value, out,
                                                             logsumexp, 0, causal);
  };
}

Figure figure(const std::string& name, Format format, Format peer_format,
              const std::vector<Shape>& shapes, const Bars& bars) {
  Figure result{.name = "attention/" + name,
                .meaning = concat(numerics::to_string(format),
                                  " attention, forward and backward, "
                                  "against ",
                                  numerics::to_string(peer_format), " of LibTorch"),
                .rows = {{"worst", Summary::worst, bars}}};
  for (const Shape& shape : shapes) {
    const auto make = [=] {
      return Contest{both_passes(shape, format, ops::cpu_kernels()),
                     both_passes(shape, peer_format, CpuKernels::stock)};
    };
    result.cases.push_back(timed(shape.name, make, shape.flops(), "FLOP"));
  }
  return result;
}

std::vector<Figure> figures(const Setup&) {
  const std::vector<Shape> all = {kOfTheStep, kWide, kLong};
  return {figure("libtorch", Format::bf16, Format::bf16, {kOfTheStep}, {.avx2 = {6, 10}}),
          figure("libtorch-fp32", Format::bf16, Format::fp32, all, {}),
          figure("shapes/bf16", Format::bf16, Format::bf16, all, {}),
          figure("shapes/fp16", Format::fp16, Format::fp16, all, {})};
}

const Subject subject("attention", figures);

}  // namespace
}  // namespace mantissa::bench
