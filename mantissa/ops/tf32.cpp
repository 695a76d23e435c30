#include "mantissa/ops/tf32.h"

#include <memory>
#include <span>

#include <ATen/ops/empty_like.h>

#include "mantissa/base/error.h"
#include "mantissa/numerics/convert.h"
#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/ops/parallel.h"
#include "mantissa/tensor/thread_state.h"

namespace mantissa::ops {
namespace {

constexpr int64_t kGrain = 1 << 15;  // elements

thread_local Tf32 current = Tf32::off;

const tensor::ThreadStatePart part([]() -> tensor::EnterAgain {
  return [tf32 = current] { return std::make_shared<Tf32Guard>(tf32); };
});

}  // namespace

Tf32Guard::Tf32Guard(Tf32 tf32) : before_(current) {
  MANTISSA_CHECK(tf32 == Tf32::off || cpu_kernels_installed(), InvalidArgument,
                 "Tf32Guard: the CPU kernels that round to TF32 are not installed; call "
                 "ops::install_cpu_kernels() first");
  current = tf32;
}

Tf32Guard::~Tf32Guard() { current = before_; }

Tf32 tf32() { return current; }

at::Tensor round_to_tf32(const at::Tensor& tensor) {
  MANTISSA_CHECK(tensor.device().is_cpu(), Unsupported, "round_to_tf32: the tensor is on ",
                 tensor.device(), "; move it to cpu");
  MANTISSA_CHECK(tensor.scalar_type() == at::kFloat, InvalidArgument,
                 "round_to_tf32: the tensor is ", tensor.scalar_type(), "; valid: Float");
  const at::Tensor source =
      tensor.is_non_overlapping_and_dense() ? tensor.detach() : tensor.detach().contiguous();
  at::Tensor result = at::empty_like(source);
  const float* from = source.const_data_ptr<float>();
  auto* to = result.mutable_data_ptr<float>();
  parallel_for(0, source.numel(), kGrain, [&](int64_t begin, int64_t end) {
    const auto count = static_cast<size_t>(end - begin);
    numerics::round_to(numerics::Format::tf32, std::span(from + begin, count),
                       std::span(to + begin, count));
  });
  return result;
}

}  // namespace mantissa::ops
