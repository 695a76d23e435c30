// One optimizer step over 8 M parameters: FP32 parameters, 16-bit ones with FP32 masters, and
// moments in fewer bits, against LibTorch's fused AdamW, which reads FP32 gradients and keeps no
// 16-bit copy.
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <benchmark/benchmark.h>

#include "mantissa/optim/optimizer.h"

namespace mantissa {
namespace {

constexpr int64_t kElements = 8 << 20;

void ours(benchmark::State& state, at::ScalarType dtype,
          optim::MomentFormat moments = optim::MomentFormat::fp32) {
  const at::Tensor weight = at::randn({kElements}).to(dtype).requires_grad_();
  weight.mutable_grad() = at::randn({kElements}).to(dtype);
  optim::Optimizer optimizer({{"w", weight}}, {.moments = moments});
  for (auto unused : state) {
    const optim::GradientReport gradients = optimizer.read_gradients();
    optimizer.step({.lr = 1e-3, .found_inf = gradients.found_inf});
  }
  state.SetItemsProcessed(state.iterations() * kElements);
}

void libtorch_fused(benchmark::State& state) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> weight = {at::randn({kElements})};
  std::vector<at::Tensor> gradient = {at::randn({kElements})};
  std::vector<at::Tensor> exp_avg = {at::zeros_like(weight[0])};
  std::vector<at::Tensor> exp_avg_sq = {at::zeros_like(weight[0])};
  const std::vector<at::Tensor> step = {at::ones({})};
  for (auto unused : state) {
    at::_fused_adamw_(weight, gradient, exp_avg, exp_avg_sq, {}, step, 1e-3, 0.9, 0.999, 0.1, 1e-8,
                      false, false);
  }
  state.SetItemsProcessed(state.iterations() * kElements);
}

BENCHMARK(libtorch_fused)->UseRealTime();
BENCHMARK_CAPTURE(ours, fp32, at::kFloat)->UseRealTime();
BENCHMARK_CAPTURE(ours, bf16_with_masters, at::kBFloat16)->UseRealTime();
BENCHMARK_CAPTURE(ours, fp16_with_masters, at::kHalf)->UseRealTime();
BENCHMARK_CAPTURE(ours, fp32_bf16_moments, at::kFloat, optim::MomentFormat::bf16)->UseRealTime();
BENCHMARK_CAPTURE(ours, fp32_blockwise8_moments, at::kFloat, optim::MomentFormat::blockwise8)
    ->UseRealTime();

}  // namespace
}  // namespace mantissa
