// What autocast costs one small operation, listed or not.
#include <utility>

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>

#include "bench/row.h"
#include "mantissa/amp/autocast.h"
#include "mantissa/base/error.h"
#include "mantissa/ops/install_cpu_kernels.h"

namespace mantissa::bench {
namespace {

constexpr int64_t kOperations = 1000;

enum class Region : uint8_t { none, libtorch, ours };

using Operation = std::function<at::Tensor()>;

// kOperations of them in one region.
Action repeated(Region region, const Operation& operation) {
  return [=, policy = amp::find_policy("torch-cpu compute=bf16")] {
    const at::NoGradGuard no_grad;
    const ops::CpuKernelsGuard stock(
        ops::CpuKernels::stock);  // what a cast costs, not who multiplies
    const auto loop = [&] {
      for (int64_t i = 0; i < kOperations; ++i) {
        operation();
      }
    };
    if (region == Region::ours) {
      const amp::Autocast autocast(policy);
      loop();
    } else {
      at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
      at::autocast::set_autocast_enabled(at::kCPU, region == Region::libtorch);
      loop();
      at::autocast::set_autocast_enabled(at::kCPU, false);
    }
  };
}

at::Tensor small(at::ScalarType dtype) { return at::randn({4, 4}).to(dtype); }

Operation mm() {
  return [a = small(at::kBFloat16)] { return at::mm(a, a); };
}

Operation cat() {
  return [a = small(at::kBFloat16)] { return at::cat({a, a}); };
}

Operation add() {
  return [a = small(at::kFloat)] { return at::add(a, a); };
}

Figure figure(const std::string& name, const std::string& meaning, Operation (*operation)(),
              Region peer) {
  const bool is_none = peer == Region::none;
  return {.name = concat("autocast/", name, is_none ? "/none" : "/libtorch"),
          .meaning = concat(meaning, " in our region against ", is_none ? "none" : "at::autocast",
                            "; 4 by 4"),
          .cases = {timed(name,
                          [=] {
                            const Operation call = operation();
                            return Contest{.ours = repeated(Region::ours, call),
                                           .peer = repeated(peer, call),
                                           .operations = kOperations};
                          })},
          .share = 0.1};
}

std::vector<Figure> figures(const Setup&) {
  std::vector<Figure> all;
  for (const Region peer : {Region::none, Region::libtorch}) {
    all.push_back(figure("listed", "BF16 mm", mm, peer));
    all.push_back(figure("listed-widest", "BF16 cat", cat, peer));
    all.push_back(figure("unlisted", "FP32 add", add, peer));
  }
  return all;
}

const Subject subject("autocast", figures);

}  // namespace
}  // namespace mantissa::bench
