// Matrix products of the shapes of a small transformer: FP32 by LibTorch, 16 bits by our kernels
// and by LibTorch's own.
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <benchmark/benchmark.h>

#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/tensor/dtype.h"

namespace mantissa {
namespace {

using numerics::Format;

void product(benchmark::State& state, Format format, ops::CpuKernels kernels) {
  ops::install_cpu_kernels();
  const ops::CpuKernelsGuard guard(kernels);
  const at::NoGradGuard no_grad;
  const int64_t m = state.range(0);
  const int64_t k = state.range(1);
  const int64_t n = state.range(2);
  const at::ScalarType dtype = tensor::dtype_of(format);
  const at::Tensor a = at::randn({m, k}).to(dtype);
  const at::Tensor b = at::randn({n, k}).to(dtype).t();  // as a linear layer has it
  for (auto unused : state) {
    benchmark::DoNotOptimize(at::mm(a, b));
  }
  state.counters["GFLOP/s"] = benchmark::Counter(
      2e-9 * static_cast<double>(m * k * n) * static_cast<double>(state.iterations()),
      benchmark::Counter::kIsRate);
}

void shapes(benchmark::internal::Benchmark* bench) {
  bench->Args({512, 512, 512})->Args({4096, 256, 768})->Args({4096, 256, 1024})->UseRealTime();
}

BENCHMARK_CAPTURE(product, fp32, Format::fp32, ops::CpuKernels::stock)->Apply(shapes);
BENCHMARK_CAPTURE(product, bf16_ours, Format::bf16, ops::CpuKernels::ours)->Apply(shapes);
BENCHMARK_CAPTURE(product, fp16_ours, Format::fp16, ops::CpuKernels::ours)->Apply(shapes);
BENCHMARK_CAPTURE(product, bf16_libtorch, Format::bf16, ops::CpuKernels::stock)
    ->Args({512, 512, 512})
    ->UseRealTime();

}  // namespace
}  // namespace mantissa
