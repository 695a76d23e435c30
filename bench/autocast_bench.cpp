// What autocast costs one small operation: listed or not, against none and against at::autocast.
#include <ATen/autocast_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <benchmark/benchmark.h>

#include "mantissa/amp/autocast.h"

namespace mantissa {
namespace {

enum class Region { none, libtorch, ours };

template <typename Operation>
void measure(benchmark::State& state, Region region, const Operation& operation) {
  const at::NoGradGuard no_grad;
  const auto loop = [&] {
    for (auto unused : state) {
      benchmark::DoNotOptimize(operation());
    }
  };
  if (region == Region::ours) {
    const amp::Autocast autocast(amp::find_policy("torch-cpu compute=bf16"));
    loop();
  } else {
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, region == Region::libtorch);
    loop();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
}

void listed(benchmark::State& state, Region region) {
  const at::Tensor a = at::randn({4, 4}).to(at::kBFloat16);
  measure(state, region, [&] { return at::mm(a, a); });
}

void listed_widest(benchmark::State& state, Region region) {
  const at::Tensor a = at::randn({4, 4}).to(at::kBFloat16);
  measure(state, region, [&] { return at::cat({a, a}); });
}

void unlisted(benchmark::State& state, Region region) {
  const at::Tensor a = at::randn({8});
  measure(state, region, [&] { return at::add(a, a); });
}

BENCHMARK_CAPTURE(listed, none, Region::none);
BENCHMARK_CAPTURE(listed, libtorch, Region::libtorch);
BENCHMARK_CAPTURE(listed, ours, Region::ours);
BENCHMARK_CAPTURE(listed_widest, none, Region::none);
BENCHMARK_CAPTURE(listed_widest, libtorch, Region::libtorch);
BENCHMARK_CAPTURE(listed_widest, ours, Region::ours);
BENCHMARK_CAPTURE(unlisted, none, Region::none);
BENCHMARK_CAPTURE(unlisted, libtorch, Region::libtorch);
BENCHMARK_CAPTURE(unlisted, ours, Region::ours);

}  // namespace
}  // namespace mantissa
