#include "mantissa/monitor/roofline.h"

#include <algorithm>
#include <functional>
#include <limits>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

#include "mantissa/base/error.h"
#include "mantissa/monitor/time_split.h"
#include "mantissa/tensor/dtype.h"

namespace mantissa::monitor {
namespace {

// Nothing makes a machine faster than it is, so the least time counts.
double least_seconds(int repeats, const std::function<void()>& action) {
  action();
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < repeats; ++i) {
    const double begin = steady_seconds();
    action();
    least = std::min(least, steady_seconds() - begin);
  }
  return least;
}

double rate_of(const Roofline& roofline, numerics::Format format) {
  const auto found = roofline.flops.find(format);
  MANTISSA_CHECK(found != roofline.flops.end(), InvalidArgument, "roofline: the rate of ",
                 numerics::to_string(format),
                 " was not measured; name the format to measure_roofline");
  return found->second;
}

}  // namespace

double Roofline::least_s(numerics::Format format, double product_flops, double bytes) const {
  return std::max(product_flops / rate_of(*this, format), bytes / copy_bytes);
}

bool Roofline::is_memory_bound(numerics::Format format, double product_flops, double bytes) const {
  return bytes / copy_bytes > product_flops / rate_of(*this, format);
}

Roofline measure_roofline(const std::vector<numerics::Format>& formats) {
  constexpr int64_t kSide = 1024;
  constexpr int64_t kElements = int64_t{32} << 20;  // 128 MiB, beyond most caches
  const at::NoGradGuard no_grad;
  Roofline roofline;
  for (const numerics::Format format : formats) {
    MANTISSA_CHECK(format == numerics::Format::fp32 || format == numerics::Format::bf16 ||
                       format == numerics::Format::fp16,
                   InvalidArgument, "roofline: format is ", numerics::to_string(format),
                   "; valid: fp32 bf16 fp16");
    const at::Tensor a = at::ones({kSide, kSide}, tensor::dtype_of(format));
    const double seconds = least_seconds(5, [&] { at::mm(a, a); });
    roofline.flops[format] = 2.0 * kSide * kSide * kSide / seconds;
  }
  const at::Tensor from = at::ones({kElements}, at::kFloat);
  const at::Tensor to = at::empty({kElements}, at::kFloat);
  roofline.copy_bytes = 2.0 * sizeof(float) * kElements / least_seconds(3, [&] { to.copy_(from); });
  return roofline;
}

}  // namespace mantissa::monitor
