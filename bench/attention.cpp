// Attention and its gradients: 8 sequences of 512 tokens, 4 heads of 64, causal.
#include <tuple>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/randn.h>

#include "bench/row.h"
#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/tensor/dtype.h"

namespace mantissa::bench {
namespace {

using numerics::Format;
using ops::CpuKernels;

constexpr int64_t kBatch = 8;
constexpr int64_t kHeads = 4;
constexpr int64_t kTokens = 512;
constexpr int64_t kWidth = 64;
// Two products forward and five backward, of half of all scores.
constexpr double kFlops = 7.0 * kBatch * kHeads * kTokens * kTokens * kWidth;

Action both_passes(Format format, CpuKernels kernels) {
  const auto heads = [format] {
    return at::randn({kBatch, kTokens, kHeads, kWidth})
        .to(tensor::dtype_of(format))
        .transpose(1, 2);
  };
  const at::Tensor query = heads();
  const at::Tensor key = heads();
  const at::Tensor value = heads();
  const at::Tensor gradient = heads();
  return [=] {
    const at::NoGradGuard no_grad;
    const ops::CpuKernelsGuard guard(kernels);
    const auto [out, logsumexp] =
        at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, 0, /*is_causal=*/true);
    at::_scaled_dot_product_flash_attention_for_cpu_backward(gradient, query, key, value, out,
                                                             logsumexp, 0, /*is_causal=*/true);
  };
}

Figure figure(const std::string& name, const std::string& peer, Format peer_format,
              const Bars& bars) {
  const auto make = [peer_format] {
    return Contest{both_passes(Format::bf16, ops::cpu_kernels()),
                   both_passes(peer_format, CpuKernels::stock)};
  };
  return {.name = "attention/" + name,
          .meaning = "BF16 attention, forward and backward, against " + peer + " of LibTorch",
          .cases = {timed(name, make, kFlops, "FLOP")},
          .rows = {{"", Summary::worst, bars}}};
}

std::vector<Figure> figures(const Setup&) {
  return {figure("libtorch", "BF16", Format::bf16, {.avx2 = {6, 10}}),
          figure("libtorch-fp32", "FP32", Format::fp32, {})};
}

const Subject subject("attention", figures);

}  // namespace
}  // namespace mantissa::bench
