// Conversions between FP32 and the narrow formats, against LibTorch's copy; a copy bounds both.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <benchmark/benchmark.h>

#include "mantissa/numerics/convert.h"
#include "mantissa/tensor/dtype.h"

namespace mantissa {
namespace {

using numerics::Format;

constexpr int64_t kElements = 1 << 20;
constexpr int64_t kBytes = kElements * 6;  // 4 of FP32, 2 of the narrow format

void report(benchmark::State& state) { state.SetBytesProcessed(state.iterations() * kBytes); }

void encode_ours(benchmark::State& state, Format format, numerics::Rounding rounding) {
  const at::Tensor wide = at::randn({kElements});
  std::vector<uint16_t> narrow(kElements);
  const numerics::ConvertOptions options{.rounding = rounding};
  for (auto unused : state) {
    numerics::encode(format, {wide.const_data_ptr<float>(), size_t{kElements}},
                     std::span<uint16_t>(narrow), options);
    benchmark::ClobberMemory();
  }
  report(state);
}

void encode_libtorch(benchmark::State& state, Format format) {
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor wide = at::randn({kElements});
  const at::Tensor narrow = at::empty({kElements}, tensor::dtype_of(format));
  for (auto unused : state) {
    narrow.copy_(wide);
    benchmark::ClobberMemory();
  }
  report(state);
  at::set_num_threads(threads);
}

BENCHMARK_CAPTURE(encode_libtorch, bf16, Format::bf16);
BENCHMARK_CAPTURE(encode_ours, bf16, Format::bf16, numerics::Rounding::nearest_even);
BENCHMARK_CAPTURE(encode_ours, bf16_stochastic, Format::bf16, numerics::Rounding::stochastic);
BENCHMARK_CAPTURE(encode_libtorch, fp16, Format::fp16);
BENCHMARK_CAPTURE(encode_ours, fp16, Format::fp16, numerics::Rounding::nearest_even);

}  // namespace
}  // namespace mantissa
