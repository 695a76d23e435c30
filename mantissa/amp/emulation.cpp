#include "mantissa/amp/emulation.h"

#include <limits>
#include <span>
#include <string>
#include <string_view>

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "mantissa/base/error.h"
#include "mantissa/numerics/convert.h"
#include "mantissa/tensor/dtype.h"

namespace mantissa::amp {
namespace {

using numerics::Format;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::optional<Format>& emulated() {
  thread_local std::optional<Format> format;
  return format;
}

at::ScalarType storage_of(Format format) {
  switch (format) {
    case Format::fp8_e4m3:
      return at::kFloat8_e4m3fn;
    case Format::fp8_e5m2:
      return at::kFloat8_e5m2;
    default:
      return tensor::dtype_of(format);
  }
}

// By LibTorch's casts. Some versions of it saturate in fp8_e4m3, and we do not.
at::Tensor round_composed(const at::Tensor& values, Format format) {
  const at::Tensor rounded = values.to(storage_of(format)).to(at::kFloat);
  if (format != Format::fp8_e4m3) {
    return rounded;
  }
  constexpr double kFirstBeyond = 464;  // itself a tie, which goes to 448
  return rounded.masked_fill(values.abs().gt(kFirstBeyond),
                             std::numeric_limits<double>::quiet_NaN());
}

at::Tensor round_plain(const at::Tensor& tensor, std::string_view name) {
  const Format format = numerics::parse_format(name);
  if (!tensor.device().is_cpu()) {
    return round_composed(tensor.to(at::kFloat), format);
  }
  at::Tensor result = tensor.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  result = result.is_non_overlapping_and_dense() ? result : result.contiguous();
  constexpr int64_t kGrain = 1 << 15;
  float* values = result.mutable_data_ptr<float>();
  at::parallel_for(0, result.numel(), kGrain, [&](int64_t begin, int64_t end) {
    const std::span<float> part(values + begin, static_cast<size_t>(end - begin));
    numerics::round_to(format, part, part);
  });
  return result;
}

at::Tensor call_round(const at::Tensor& tensor, std::string_view name) {
  static const auto operation = c10::Dispatcher::singleton()
                                    .findSchemaOrThrow("mantissa::round_to", "")
                                    .typed<at::Tensor(const at::Tensor&, std::string_view)>();
  return operation.call(tensor, name);
}

struct RoundTo : torch::autograd::Function<RoundTo> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tensor,
                            std::string_view name) {
    context->saved_data["format"] = std::string(name);
    context->saved_data["dtype"] = static_cast<int64_t>(tensor.scalar_type());
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return call_round(tensor, name);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto dtype = static_cast<at::ScalarType>(context->saved_data["dtype"].toInt());
    const std::string& name = context->saved_data["format"].toStringRef();
    return {gradients[0].defined() ? call_round(gradients[0], name).to(dtype) : at::Tensor(),
            at::Tensor()};
  }
};

at::Tensor round_recorded(const at::Tensor& tensor, std::string_view name) {
  return RoundTo::apply(tensor, name);
}

TORCH_LIBRARY_FRAGMENT(mantissa, library) {
  library.def("round_to(Tensor x, str format) -> Tensor");
}

TORCH_LIBRARY_IMPL(mantissa, CompositeExplicitAutograd, library) {
  library.impl("round_to", &round_plain);
}

TORCH_LIBRARY_IMPL(mantissa, Autograd, library) { library.impl("round_to", &round_recorded); }

}  // namespace

Emulation::Emulation(Format format) : outer_(emulated()) {
  MANTISSA_CHECK(format != Format::fp32 && format != Format::tf32, InvalidArgument,
                 "emulation: format ", numerics::to_string(format),
                 " is that of the arithmetic; use bf16, fp16, fp8_e4m3 or fp8_e5m2");
  emulated() = format;
}

Emulation::~Emulation() { emulated() = outer_; }

std::optional<Format> emulated_format() { return emulated(); }

at::Tensor round_to(const at::Tensor& tensor, Format format) {
  return call_round(tensor, numerics::to_string(format));
}

}  // namespace mantissa::amp
