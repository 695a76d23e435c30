#include "mantissa/ops/activation.h"

#include <algorithm>
#include <vector>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "mantissa/base/error.h"
#include "mantissa/ops/cpu/activation_kernel.h"
#include "mantissa/ops/parallel.h"
#include "mantissa/ops/tensor_blocks.h"
#include "mantissa/tensor/dtype.h"
#include "mantissa/tensor/recompute.h"

namespace mantissa::ops {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kBlock = 4096;  // numbers, which stay in the L1 cache

// call(first, count) of blocks of `count` numbers.
template <typename Call>
void for_blocks(int64_t count, const Call& call) {
  parallel_for(0, (count + kBlock - 1) / kBlock, 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      call(i * kBlock, std::min(kBlock, count - i * kBlock));
    }
  });
}

struct Workspace {
  Scratch a, b, c, d, e, f;
};

Workspace& workspace() {
  static thread_local Workspace instance;
  return instance;
}

bool has_kernel(const Tensor& x) {
  return x.is_cpu() && (x.scalar_type() == at::kFloat || tensor::is_16bit(x.scalar_type()));
}

/// An activation of one or two tensors, and the gradients of these.
struct Gelu {
  static constexpr const char* kName = "gelu_linear";

  static Tensor out(const variable_list& in) {
    const Tensor& x = in[0];
    if (!has_kernel(x)) {
      return at::gelu(x, "tanh");
    }
    Tensor result = at::empty_like(x);
    const TensorBlocks from(x);
    const TensorBlocks to(result);
    for_blocks(x.numel(), [&](int64_t first, int64_t count) {
      Workspace& space = workspace();
      float* numbers = to.place(first, count, space.b);
      cpu::gelu(from.read(first, count, space.a), count, numbers);
      to.store(first, count, numbers);
    });
    return result;
  }

  // Of the gradient of `out`; makes `out` too.
  static variable_list gradients(const variable_list& in, const Tensor& grad_out, Tensor& out) {
    const Tensor& x = in[0];
    if (!has_kernel(x)) {
      out = at::gelu(x, "tanh");
      return {at::gelu_backward(grad_out, x, "tanh")};
    }
    out = at::empty_like(x);
    const Tensor grad_x = at::empty_like(x);
    const TensorBlocks xs(x);
    const TensorBlocks grad_outs(grad_out);
    const TensorBlocks outs(out);
    const TensorBlocks grad_xs(grad_x);
    for_blocks(x.numel(), [&](int64_t first, int64_t count) {
      Workspace& space = workspace();
      float* numbers = outs.place(first, count, space.c);
      float* gradient = grad_xs.place(first, count, space.d);
      cpu::gelu_gradient(xs.read(first, count, space.a), grad_outs.read(first, count, space.b),
                         count, numbers, gradient);
      outs.store(first, count, numbers);
      grad_xs.store(first, count, gradient);
    });
    return {grad_x};
  }
};

struct Swiglu {
  static constexpr const char* kName = "swiglu_linear";

  static Tensor out(const variable_list& in) {
    if (!has_kernel(in[0])) {
      return at::silu(in[0]).mul(in[1]);
    }
    Tensor result = at::empty_like(in[0]);
    const TensorBlocks gates(in[0]);
    const TensorBlocks ups(in[1]);
    const TensorBlocks to(result);
    for_blocks(result.numel(), [&](int64_t first, int64_t count) {
      Workspace& space = workspace();
      float* numbers = to.place(first, count, space.c);
      cpu::swiglu(gates.read(first, count, space.a), ups.read(first, count, space.b), count,
                  numbers);
      to.store(first, count, numbers);
    });
    return result;
  }

  static variable_list gradients(const variable_list& in, const Tensor& grad_out, Tensor& out) {
    if (!has_kernel(in[0])) {
      const Tensor silu = at::silu(in[0]);
      out = silu.mul(in[1]);
      return {at::silu_backward(grad_out.mul(in[1]), in[0]), grad_out.mul(silu)};
    }
    out = at::empty_like(in[0]);
    const Tensor grad_gate = at::empty_like(in[0]);
    const Tensor grad_up = at::empty_like(in[0]);
    const TensorBlocks gates(in[0]);
    const TensorBlocks ups(in[1]);
    const TensorBlocks grad_outs(grad_out);
    const TensorBlocks outs(out);
    const TensorBlocks grad_gates(grad_gate);
    const TensorBlocks grad_ups(grad_up);
    for_blocks(out.numel(), [&](int64_t first, int64_t count) {
      Workspace& space = workspace();
      float* numbers = outs.place(first, count, space.c);
      float* of_gate = grad_gates.place(first, count, space.d);
      float* of_up = grad_ups.place(first, count, space.e);
      const float* gradient = grad_outs.read(first, count, space.f);
      cpu::swiglu_gradient(gates.read(first, count, space.a), ups.read(first, count, space.b),
                           gradient, count, numbers, of_gate, of_up);
      outs.store(first, count, numbers);
      grad_gates.store(first, count, of_gate);
      grad_ups.store(first, count, of_up);
    });
    return {grad_gate, grad_up};
  }
};

void check(const char* name, const Tensor& x, const OptionalTensor& up, const Tensor& weight,
           const OptionalTensor& bias) {
  MANTISSA_CHECK(x.dim() > 0 && weight.dim() == 2 && weight.size(1) == x.size(-1), InvalidArgument,
                 name, ": weight has shape ", weight.sizes(), " for an input of shape ", x.sizes(),
                 "; pass (outputs, features)");
  MANTISSA_CHECK(!up || up->sizes() == x.sizes(), InvalidArgument, name, ": up has shape ",
                 up->sizes(), "; pass the gate's, ", x.sizes());
  MANTISSA_CHECK(!bias || (bias->dim() == 1 && bias->size(0) == weight.size(0)), InvalidArgument,
                 name, ": bias has shape ", bias->sizes(), "; pass the ", weight.size(0),
                 " outputs of the weight");
  for (const Tensor& other : {up.value_or(x), weight, bias.value_or(x)}) {
    MANTISSA_CHECK(other.device() == x.device(), InvalidArgument, name, ": arguments are on ",
                   x.device(), " and ", other.device(), "; pass one device");
    MANTISSA_CHECK(other.scalar_type() == x.scalar_type(), InvalidArgument, name,
                   ": arguments are ", x.scalar_type(), " and ", other.scalar_type(),
                   "; pass one dtype");
  }
}

// Arguments (x, or gate, and up, weight, bias).
template <typename Activation>
struct ActivationLinear : torch::autograd::Function<ActivationLinear<Activation>> {
  // `saves`: what is kept below is not dropped again, as where nothing needs a gradient.
  static Tensor forward(AutogradContext* context, const Tensor& x, const OptionalTensor& up,
                        const Tensor& weight, const OptionalTensor& bias, bool saves) {
    const at::AutoDispatchBelowADInplaceOrView below;
    variable_list kept = {x.contiguous(), up ? up->contiguous() : Tensor(), weight};
    Tensor out;
    if (saves && tensor::recomputation_ends_within(up ? 3 : 2)) {
      std::vector<int64_t> shape = x.sizes().vec();
      shape.back() = weight.size(0);
      out = at::empty(shape, x.options());
    } else {
      out = at::linear(Activation::out(kept), weight, bias);
    }
    context->save_for_backward(kept);
    context->saved_data["bias"] = bias.has_value();
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    MANTISSA_CHECK(!at::GradMode::is_enabled(), Unsupported, Activation::kName,
                   ": its gradients are to be differentiated, which is not supported; use "
                   "at::linear of the activation there");
    const variable_list kept = context->get_saved_variables();
    const Tensor& weight = kept[2];
    const Tensor grad_out = gradients[0].reshape({-1, weight.size(0)});
    const Tensor grad_activation = at::mm(grad_out, weight).view(kept[0].sizes());
    Tensor activation;
    variable_list results = Activation::gradients(kept, grad_activation, activation);
    results.resize(2);
    results.push_back(at::mm(grad_out.t(), activation.view({-1, weight.size(1)})));
    const at::ScalarType wide = weight.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    results.push_back(context->saved_data["bias"].toBool()
                          ? grad_out.sum(0, false, wide).to(weight.scalar_type())
                          : Tensor());
    results.emplace_back();
    return results;
  }
};

template <typename Activation>
Tensor without_autograd(const Tensor& x, const OptionalTensor& up, const Tensor& weight,
                        const OptionalTensor& bias) {
  check(Activation::kName, x, up, weight, bias);
  return at::linear(Activation::out({x.contiguous(), up ? up->contiguous() : Tensor()}), weight,
                    bias);
}

template <typename Activation>
Tensor with_autograd(const Tensor& x, const OptionalTensor& up, const Tensor& weight,
                     const OptionalTensor& bias) {
  check(Activation::kName, x, up, weight, bias);
  bool saves = false;
  for (const Tensor& argument : {x, up.value_or(Tensor()), weight, bias.value_or(Tensor())}) {
    saves = saves || (at::GradMode::is_enabled() && argument.defined() && argument.requires_grad());
  }
  return ActivationLinear<Activation>::apply(x, up, weight, bias, saves);
}

using GeluSignature = Tensor(const Tensor&, const Tensor&, const OptionalTensor&);
using SwigluSignature = Tensor(const Tensor&, const Tensor&, const Tensor&, const OptionalTensor&);

TORCH_LIBRARY_FRAGMENT(mantissa, library) {
  library.def("gelu_linear(Tensor x, Tensor weight, Tensor? bias=None) -> Tensor");
  library.def("swiglu_linear(Tensor gate, Tensor up, Tensor weight, Tensor? bias=None) -> Tensor");
}

TORCH_LIBRARY_IMPL(mantissa, CompositeExplicitAutograd, library) {
  library.impl("gelu_linear",
               [](const Tensor& x, const Tensor& weight, const OptionalTensor& bias) {
                 return without_autograd<Gelu>(x, {}, weight, bias);
               });
  library.impl("swiglu_linear", [](const Tensor& gate, const Tensor& up, const Tensor& weight,
                                   const OptionalTensor& bias) {
    return without_autograd<Swiglu>(gate, up, weight, bias);
  });
}

TORCH_LIBRARY_IMPL(mantissa, Autograd, library) {
  library.impl("gelu_linear",
               [](const Tensor& x, const Tensor& weight, const OptionalTensor& bias) {
                 return with_autograd<Gelu>(x, {}, weight, bias);
               });
  library.impl("swiglu_linear", [](const Tensor& gate, const Tensor& up, const Tensor& weight,
                                   const OptionalTensor& bias) {
    return with_autograd<Swiglu>(gate, up, weight, bias);
  });
}

}  // namespace

Tensor gelu_linear(const Tensor& x, const Tensor& weight, const OptionalTensor& bias) {
  static const auto operation = c10::Dispatcher::singleton()
                                    .findSchemaOrThrow("mantissa::gelu_linear", "")
                                    .typed<GeluSignature>();
  return operation.call(x, weight, bias);
}

Tensor swiglu_linear(const Tensor& gate, const Tensor& up, const Tensor& weight,
                     const OptionalTensor& bias) {
  static const auto operation = c10::Dispatcher::singleton()
                                    .findSchemaOrThrow("mantissa::swiglu_linear", "")
                                    .typed<SwigluSignature>();
  return operation.call(gate, up, weight, bias);
}

}  // namespace mantissa::ops
