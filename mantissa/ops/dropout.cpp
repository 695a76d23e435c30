#include "mantissa/ops/dropout.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/result_type.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "mantissa/base/error.h"
#include "mantissa/numerics/convert_kernels.h"
#include "mantissa/ops/cpu/blocks.h"
#include "mantissa/ops/cpu/dropout_kernel.h"
#include "mantissa/ops/parallel.h"
#include "mantissa/tensor/dtype.h"

namespace mantissa::ops {
namespace {

using at::ScalarType;
using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

constexpr int64_t kBlock = 4096;   // numbers, which stay in the L1 cache
constexpr int64_t kPerPhilox = 8;  // numbers that one call of Philox decides on
constexpr double kEvents = 65536;  // of 16 bits

/// What decides on every number.
struct Mask {
  double p;
  int64_t seed;
  int64_t stream;

  // How many of the 2^16 events drop a number.
  int32_t threshold() const {
    if (p == 0 || p == 1) {
      return static_cast<int32_t>(p * kEvents);
    }
    return static_cast<int32_t>(std::clamp(std::nearbyint(p * kEvents), 1.0, kEvents - 1));
  }
  double scale() const { return p == 1 ? 0 : kEvents / (kEvents - threshold()); }
};

ScalarType wide_dtype(ScalarType dtype) { return dtype == at::kDouble ? at::kDouble : at::kFloat; }

// `out` is contiguous, and all are FP32, BF16 or FP16.
void drop_into(const Tensor& out, const Tensor& x_in, const OptionalTensor& residual_in,
               const Mask& mask, double scale) {
  const ScalarType dtype = out.scalar_type();
  const Tensor x = x_in.contiguous();
  const Tensor residual = residual_in ? residual_in->to(dtype).contiguous() : Tensor();
  const void* x_data = x.const_data_ptr();
  const void* residual_data = residual.defined() ? residual.const_data_ptr() : nullptr;
  void* out_data = out.mutable_data_ptr();
  const int64_t numbers = x.numel();
  parallel_for(0, (numbers + kBlock - 1) / kBlock, 4, [&](int64_t begin, int64_t end) {
    alignas(64) std::array<uint32_t, kBlock / 2 + numerics::kernels::kMaxRandomGroup> words;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i * kBlock;
      numerics::kernels::random_words(
          static_cast<uint64_t>(mask.seed), static_cast<uint64_t>(mask.stream),
          static_cast<uint64_t>(first / kPerPhilox), words.data(), static_cast<size_t>(kBlock / 2));
      cpu::DroppedNumbers block = {};
      block.x = cpu::element(x_data, x.scalar_type(), first);
      block.x_format = cpu::format_of(x.scalar_type());
      block.residual =
          residual_data == nullptr ? nullptr : cpu::element(residual_data, dtype, first);
      block.bits = reinterpret_cast<const uint16_t*>(words.data());
      block.threshold = mask.threshold();
      block.scale = static_cast<float>(scale);
      block.count = std::min(kBlock, numbers - first);
      block.out = cpu::element(out_data, dtype, first);
      block.out_format = cpu::format_of(dtype);
      cpu::drop(block);
    }
  });
}

// As ATen operations, with the mask made on the CPU.
Tensor composed(const Tensor& x, const OptionalTensor& residual, const Mask& mask,
                ScalarType dtype) {
  const Tensor ones = at::ones(x.sizes(), at::kFloat);
  const Tensor kept = at::empty(x.sizes(), at::kFloat);
  drop_into(kept, ones, {}, mask, /*scale=*/mask.p == 1 ? 0 : 1);
  const ScalarType wide = wide_dtype(dtype);
  Tensor out = x.to(wide).mul(kept.to(x.device(), wide).mul(mask.scale()));
  if (residual) {
    out = out.add(residual->to(wide));
  }
  return out.to(dtype).contiguous();
}

bool has_kernel(const Tensor& x, const OptionalTensor& residual) {
  return x.is_cpu() && x.scalar_type() != at::kDouble && (!residual || residual->is_cpu());
}

void check_dtype(const char* name, const char* what, ScalarType dtype) {
  MANTISSA_CHECK(tensor::is_training_dtype(dtype), InvalidArgument, name, ": ", what, " is ", dtype,
                 "; pass Float, BFloat16, Half or Double");
}

void check(const Tensor& x, const OptionalTensor& residual, double p) {
  const char* name = residual ? "dropout_add" : "dropout";
  MANTISSA_CHECK(p >= 0 && p <= 1, InvalidArgument, name, ": p is ", p,
                 "; pass a probability from 0 to 1");
  check_dtype(name, "x", x.scalar_type());
  if (residual) {
    check_dtype(name, "residual", residual->scalar_type());
    MANTISSA_CHECK(residual->sizes() == x.sizes(), InvalidArgument, name, ": residual has shape ",
                   residual->sizes(), "; pass that of x, ", x.sizes());
  }
}

Tensor dropped(const Tensor& x, const OptionalTensor& residual, const Mask& mask,
               std::optional<ScalarType> dtype_in) {
  check(x, residual, mask.p);
  const ScalarType dtype =
      dtype_in.value_or(residual ? at::result_type(x, *residual) : x.scalar_type());
  check_dtype("dropout", "dtype", dtype);
  const at::AutoDispatchBelowADInplaceOrView below;
  if (dtype == at::kDouble || !has_kernel(x, residual)) {
    return composed(x, residual, mask, dtype);
  }
  Tensor out = at::empty(x.sizes(), x.options().dtype(dtype));
  drop_into(out, x, residual, mask, mask.scale());
  return out;
}

// The dispatcher's operations, with autograd and below it. `dtype` is that of the result.

Tensor call_dropout(const Tensor& x, double p, int64_t seed, int64_t stream,
                    std::optional<ScalarType> dtype);

// Arguments (x, residual).
struct DropoutFunction : torch::autograd::Function<DropoutFunction> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x,
                        const OptionalTensor& residual, const Mask& mask,
                        std::optional<ScalarType> dtype) {
    context->saved_data["p"] = mask.p;
    context->saved_data["seed"] = mask.seed;
    context->saved_data["stream"] = mask.stream;
    context->saved_data["x"] = static_cast<int64_t>(x.scalar_type());
    if (residual) {
      context->saved_data["residual"] = static_cast<int64_t>(residual->scalar_type());
    }
    return dropped(x, residual, mask, dtype);
  }

  // By the operation itself, which is linear: so gradients can be differentiated again.
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    auto& saved = context->saved_data;
    const auto dtype_of = [&saved](const char* what) {
      return static_cast<ScalarType>(saved[what].toInt());
    };
    Tensor grad_x;
    Tensor grad_residual;
    if (context->needs_input_grad(0)) {
      grad_x = call_dropout(gradients[0], saved["p"].toDouble(), saved["seed"].toInt(),
                            saved["stream"].toInt(), dtype_of("x"));
    }
    if (saved.find("residual") != saved.end() && context->needs_input_grad(1)) {
      grad_residual = gradients[0].to(dtype_of("residual"));
    }
    return {grad_x, grad_residual, Tensor(), Tensor()};
  }
};

template <bool kAutograd>
Tensor call(const Tensor& x, const OptionalTensor& residual, const Mask& mask,
            std::optional<ScalarType> dtype) {
  if constexpr (kAutograd) {
    return DropoutFunction::apply(x, residual, mask, dtype);
  } else {
    return dropped(x, residual, mask, dtype);
  }
}

template <bool kAutograd>
Tensor dropout_kernel(const Tensor& x, double p, int64_t seed, int64_t stream,
                      std::optional<ScalarType> dtype) {
  return call<kAutograd>(x, {}, {p, seed, stream}, dtype);
}

template <bool kAutograd>
Tensor dropout_add_kernel(const Tensor& x, const Tensor& residual, double p, int64_t seed,
                          int64_t stream) {
  return call<kAutograd>(x, residual, {p, seed, stream}, {});
}

TORCH_LIBRARY_FRAGMENT(mantissa, library) {
  library.def(
      "dropout(Tensor x, float p, int seed, int stream, *, ScalarType? dtype=None) -> Tensor");
  library.def("dropout_add(Tensor x, Tensor residual, float p, int seed, int stream) -> Tensor");
}

template <bool kAutograd>
void implement(torch::Library& library) {
  library.impl("dropout", &dropout_kernel<kAutograd>);
  library.impl("dropout_add", &dropout_add_kernel<kAutograd>);
}

TORCH_LIBRARY_IMPL(mantissa, CompositeExplicitAutograd, library) { implement<false>(library); }

TORCH_LIBRARY_IMPL(mantissa, Autograd, library) { implement<true>(library); }

Tensor call_dropout(const Tensor& x, double p, int64_t seed, int64_t stream,
                    std::optional<ScalarType> dtype) {
  static const auto operation = c10::Dispatcher::singleton()
                                    .findSchemaOrThrow("mantissa::dropout", "")
                                    .typed<decltype(dropout_kernel<false>)>();
  return operation.call(x, p, seed, stream, dtype);
}

Tensor call_dropout_add(const Tensor& x, const Tensor& residual, const Mask& mask) {
  static const auto operation = c10::Dispatcher::singleton()
                                    .findSchemaOrThrow("mantissa::dropout_add", "")
                                    .typed<decltype(dropout_add_kernel<false>)>();
  return operation.call(x, residual, mask.p, mask.seed, mask.stream);
}

// Draws only where something is left to chance.
Mask draw(double p, const std::optional<at::Generator>& generator_in) {
  if (p == 1) {
    return {p, 0, 0};
  }
  auto* generator = at::get_generator_or_default<at::CPUGeneratorImpl>(
      generator_in, at::detail::getDefaultCPUGenerator());
  const std::lock_guard<std::mutex> lock(generator->mutex_);
  const auto seed = static_cast<int64_t>(generator->random64());
  return {p, seed, static_cast<int64_t>(generator->random64())};
}

}  // namespace

Tensor dropout(const Tensor& x, double p, bool train,
               const std::optional<at::Generator>& generator) {
  check(x, {}, p);
  if (!train || p == 0 || x.numel() == 0) {
    return x;
  }
  const Mask mask = draw(p, generator);
  return call_dropout(x, mask.p, mask.seed, mask.stream, {});
}

Tensor dropout_add(const Tensor& x, const Tensor& residual, double p, bool train,
                   const std::optional<at::Generator>& generator) {
  check(x, residual, p);
  if (!train || p == 0 || x.numel() == 0) {
    return residual.add(x);
  }
  return call_dropout_add(x, residual, draw(p, generator));
}

}  // namespace mantissa::ops
