#include "mantissa/ops/norm.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "mantissa/base/error.h"
#include "mantissa/ops/cpu/blocks.h"
#include "mantissa/ops/cpu/norm_kernel.h"
#include "mantissa/ops/parallel.h"
#include "mantissa/ops/scratch.h"
#include "mantissa/ops/tensor_blocks.h"
#include "mantissa/tensor/dtype.h"

// Shapes: N rows, D numbers a row.
namespace mantissa::ops {
namespace {

using at::ScalarType;
using at::Tensor;
using cpu::NormKind;
using OptionalTensor = std::optional<Tensor>;

struct Norm {
  Tensor sum;  // x, or x + residual
  Tensor out;
  Tensor mean;  // (N); undefined of rms_norm
  Tensor rstd;  // (N)
};

struct NormGradients {
  Tensor x;         // of x + residual, in the dtype of x
  Tensor residual;  // the same in that of the residual
  Tensor weight;    // FP32 (FP64)
  Tensor bias;
};

ScalarType wide_dtype(const Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

const char* name_of(NormKind kind) { return kind == NormKind::layer ? "layer_norm" : "rms_norm"; }

void check(NormKind kind, const Tensor& x, const OptionalTensor& residual, const Tensor& weight,
           const OptionalTensor& bias, std::optional<ScalarType> dtype) {
  const char* name = name_of(kind);
  MANTISSA_CHECK(x.dim() > 0 && x.size(-1) > 0, InvalidArgument, name, ": x has shape ", x.sizes(),
                 "; pass (..., D) with numbers in a row");
  MANTISSA_CHECK(weight.dim() == 1 && weight.size(0) == x.size(-1), InvalidArgument, name,
                 ": weight has shape ", weight.sizes(), "; pass the ", x.size(-1),
                 " numbers of a row of x");
  MANTISSA_CHECK(!bias || bias->sizes() == weight.sizes(), InvalidArgument, name,
                 ": bias has shape ", bias->sizes(), "; pass the weight's, ", weight.sizes());
  MANTISSA_CHECK(!residual || residual->sizes() == x.sizes(), InvalidArgument, name,
                 ": residual has shape ", residual->sizes(), "; pass that of x, ", x.sizes());
  for (const Tensor& other : {residual.value_or(x), weight, bias.value_or(x)}) {
    MANTISSA_CHECK(other.device() == x.device(), InvalidArgument, name, ": arguments are on ",
                   x.device(), " and ", other.device(), "; pass one device");
  }
  const auto check_dtype = [name](const char* what, ScalarType is) {
    MANTISSA_CHECK(tensor::is_training_dtype(is), InvalidArgument, name, ": ", what, " is ", is,
                   "; pass Float, BFloat16, Half or Double");
  };
  check_dtype("x", x.scalar_type());
  check_dtype("weight", weight.scalar_type());
  if (bias) {
    check_dtype("bias", bias->scalar_type());
  }
  if (residual) {
    check_dtype("residual", residual->scalar_type());
  }
  if (dtype) {
    check_dtype("dtype", *dtype);
  }
}

/// Rows in chunks that do not depend on the number of threads, read in blocks that stay in the L1
/// cache.
struct Rows {
  int64_t rows;
  int64_t width;

  static constexpr int64_t kBlock = 4096;  // numbers
  static constexpr int64_t kMostChunks = 64;

  int64_t chunk() const {
    const int64_t least = std::max<int64_t>(1, 4 * kBlock / width);
    return std::max(least, (rows + kMostChunks - 1) / kMostChunks);
  }
  int64_t chunks() const { return (rows + chunk() - 1) / chunk(); }
  int64_t block() const { return std::max<int64_t>(1, kBlock / width); }

  // call(chunk, first row, rows) of each block, the blocks of a chunk in order.
  template <typename Call>
  void for_blocks(const Call& call) const {
    parallel_for(0, chunks(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t last = std::min(rows, (i + 1) * chunk());
        for (int64_t row = i * chunk(); row < last; row += block()) {
          call(i, row, std::min(block(), last - row));
        }
      }
    });
  }
};

Rows rows_of(const Tensor& x) { return {x.numel() / x.size(-1), x.size(-1)}; }

struct Workspace {
  Scratch x, more, sum, out;
};

Workspace& workspace() {
  static thread_local Workspace instance;
  return instance;
}

Tensor in_fp32(const OptionalTensor& tensor) {
  return tensor ? tensor->to(at::kFloat).contiguous() : Tensor();
}

const float* data_of(const Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<float>() : nullptr;
}

Norm norm_on_cpu(NormKind kind, const Tensor& x_in, const OptionalTensor& residual_in,
                 const Tensor& weight_in, const OptionalTensor& bias_in, double eps,
                 ScalarType dtype) {
  const Tensor x = x_in.contiguous();
  const Tensor residual = residual_in ? residual_in->contiguous() : Tensor();
  const Tensor weight = in_fp32(weight_in);
  const Tensor bias = in_fp32(bias_in);
  const Rows rows = rows_of(x);
  const auto fp32 = x.options().dtype(at::kFloat);
  Norm norm = {x, at::empty(x.sizes(), x.options().dtype(dtype)), {}, at::empty({rows.rows}, fp32)};
  if (kind == NormKind::layer) {
    norm.mean = at::empty({rows.rows}, fp32);
  }
  if (residual.defined()) {
    norm.sum = at::empty(x.sizes(), x.options().dtype(at::result_type(x, residual)));
  }
  const TensorBlocks xs(x);
  const TensorBlocks residuals(residual);
  const TensorBlocks sums(norm.sum);
  const TensorBlocks outs(norm.out);
  float* mean = norm.mean.defined() ? norm.mean.mutable_data_ptr<float>() : nullptr;
  float* rstd = norm.rstd.mutable_data_ptr<float>();
  rows.for_blocks([&](int64_t /*chunk*/, int64_t row, int64_t count) {
    Workspace& space = workspace();
    const int64_t first = row * rows.width;
    const int64_t numbers = count * rows.width;
    if (residual.defined()) {
      float* sum = sums.place(first, numbers, space.sum);
      cpu::add(xs.read(first, numbers, space.x), residuals.read(first, numbers, space.more),
               numbers, sum);
      sums.store(first, numbers, sum);
    }
    cpu::NormRows block = {kind};
    block.x = sums.read(first, numbers, space.sum);
    block.weight = data_of(weight);
    block.bias = data_of(bias);
    block.eps = static_cast<float>(eps);
    block.rows = count;
    block.width = rows.width;
    block.out = outs.place(first, numbers, space.out);
    block.mean = mean == nullptr ? nullptr : mean + row;
    block.rstd = rstd + row;
    cpu::norm_rows(block);
    outs.store(first, numbers, block.out);
  });
  return norm;
}

// Sums over rows are taken in the chunks of Rows, then over these.
NormGradients norm_backward_on_cpu(NormKind kind, const Tensor& grad_out_in,
                                   const OptionalTensor& grad_sum_in, const Norm& norm,
                                   const Tensor& weight_in, ScalarType x_dtype,
                                   std::optional<ScalarType> residual_dtype) {
  const Tensor grad_out = grad_out_in.contiguous();
  const Tensor grad_sum = grad_sum_in ? grad_sum_in->contiguous() : Tensor();
  const Tensor weight = in_fp32(weight_in);
  const Rows rows = rows_of(norm.sum);
  const auto options = norm.sum.options();
  NormGradients result;
  result.x = at::empty(norm.sum.sizes(), options.dtype(x_dtype));
  if (residual_dtype) {
    result.residual = *residual_dtype == x_dtype
                          ? result.x
                          : at::empty(norm.sum.sizes(), options.dtype(*residual_dtype));
  }
  const Tensor parts =
      at::zeros({std::max<int64_t>(1, rows.chunks()), 2, rows.width}, options.dtype(at::kFloat));
  const TensorBlocks xs(norm.sum);
  const TensorBlocks grad_outs(grad_out);
  const TensorBlocks grad_sums(grad_sum);
  const TensorBlocks grads(result.x);
  const TensorBlocks more_grads(result.residual);
  const bool has_more = result.residual.defined() && !result.residual.is_same(result.x);
  float* const sums = parts.mutable_data_ptr<float>();
  rows.for_blocks([&](int64_t chunk, int64_t row, int64_t count) {
    Workspace& space = workspace();
    const int64_t first = row * rows.width;
    const int64_t numbers = count * rows.width;
    cpu::NormGradientRows block = {kind};
    block.x = xs.read(first, numbers, space.x);
    block.grad_out = grad_outs.read(first, numbers, space.out);
    block.grad_more = grad_sums.read(first, numbers, space.more);
    block.weight = data_of(weight);
    block.mean = norm.mean.defined() ? data_of(norm.mean) + row : nullptr;
    block.rstd = data_of(norm.rstd) + row;
    block.rows = count;
    block.width = rows.width;
    block.grad_x = grads.place(first, numbers, space.sum);
    block.grad_weight = sums + chunk * 2 * rows.width;
    block.grad_bias = block.grad_weight + rows.width;
    cpu::norm_gradient_rows(block);
    grads.store(first, numbers, block.grad_x);
    if (has_more) {
      float* more = more_grads.place(first, numbers, space.out);
      std::copy_n(block.grad_x, numbers, more);
      more_grads.store(first, numbers, more);
    }
  });
  for (int64_t chunk = 1; chunk < rows.chunks(); ++chunk) {
    cpu::add(sums, sums + chunk * 2 * rows.width, 2 * rows.width, sums);
  }
  result.weight = parts[0][0];
  result.bias = parts[0][1];
  return result;
}

// As ATen operations, on any device and in FP64.

Norm composed_norm(NormKind kind, const Tensor& x, const OptionalTensor& residual,
                   const Tensor& weight, const OptionalTensor& bias, double eps, ScalarType dtype) {
  Norm norm;
  norm.sum = residual ? x.add(*residual) : x;
  const ScalarType wide = wide_dtype(norm.sum);
  const Tensor numbers = norm.sum.to(wide);
  Tensor out;
  if (kind == NormKind::layer) {
    std::tie(out, norm.mean, norm.rstd) = at::native_layer_norm(
        numbers, weight.sizes(), weight.to(wide), bias ? bias->to(wide) : Tensor(), eps);
  } else {
    norm.rstd = numbers.square().mean(-1, true).add(eps).rsqrt();
    out = numbers.mul(norm.rstd).mul(weight.to(wide));
  }
  norm.out = out.to(dtype);
  return norm;
}

NormGradients composed_norm_backward(NormKind kind, const Tensor& grad_out,
                                     const OptionalTensor& grad_sum, const Norm& norm,
                                     const Tensor& weight, ScalarType x_dtype,
                                     std::optional<ScalarType> residual_dtype) {
  const ScalarType wide = wide_dtype(norm.sum);
  const Tensor numbers = norm.sum.to(wide);
  const Tensor gradient = grad_out.to(wide);
  Tensor grad_x;
  NormGradients result;
  if (kind == NormKind::layer) {
    const Tensor wide_weight = weight.to(wide);
    std::tie(grad_x, result.weight, result.bias) = at::native_layer_norm_backward(
        gradient.contiguous(), numbers, weight.sizes(), norm.mean, norm.rstd, wide_weight,
        /*bias=*/wide_weight, {true, true, true});
  } else {
    const Tensor unit = numbers.mul(norm.rstd);
    const Tensor weighted = gradient.mul(weight.to(wide));
    grad_x = weighted.sub(unit.mul(weighted.mul(unit).mean(-1, true))).mul(norm.rstd);
    result.weight = gradient.mul(unit).reshape({-1, numbers.size(-1)}).sum(0);
  }
  if (grad_sum) {
    grad_x = grad_x.add(grad_sum->to(wide));
  }
  result.x = grad_x.to(x_dtype);
  result.residual = residual_dtype ? grad_x.to(*residual_dtype) : Tensor();
  return result;
}

bool has_kernel(const Tensor& x, const OptionalTensor& residual) {
  return x.is_cpu() && x.scalar_type() != at::kDouble &&
         !(residual && residual->scalar_type() == at::kDouble);
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Norm norm_of(NormKind kind, const Tensor& x, const OptionalTensor& residual, const Tensor& weight,
             const OptionalTensor& bias, double eps, std::optional<ScalarType> dtype) {
  check(kind, x, residual, weight, bias, dtype);
  const ScalarType out_dtype =
      dtype.value_or(residual ? at::result_type(x, *residual) : x.scalar_type());
  const at::AutoDispatchBelowADInplaceOrView below;
  const auto& norm = has_kernel(x, residual) ? norm_on_cpu : composed_norm;
  return norm(kind, x, residual, weight, bias, eps, out_dtype);
}

// Arguments (x, residual, weight, bias), results (out, sum); the sum is missing without a residual.
struct NormFunction : torch::autograd::Function<NormFunction> {
  static variable_list forward(AutogradContext* context, NormKind kind, const Tensor& x,
                               const OptionalTensor& residual, const Tensor& weight,
                               const OptionalTensor& bias, double eps,
                               std::optional<ScalarType> dtype) {
    const Norm norm = norm_of(kind, x, residual, weight, bias, eps, dtype);
    context->save_for_backward({norm.sum, norm.mean, norm.rstd, weight});
    context->saved_data["kind"] = static_cast<int64_t>(kind);
    context->saved_data["x"] = static_cast<int64_t>(x.scalar_type());
    if (residual) {
      context->saved_data["residual"] = static_cast<int64_t>(residual->scalar_type());
    }
    if (bias) {
      context->saved_data["bias"] = static_cast<int64_t>(bias->scalar_type());
    }
    return residual ? variable_list{norm.out, norm.sum} : variable_list{norm.out};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    MANTISSA_CHECK(!at::GradMode::is_enabled(), Unsupported,
                   "layer_norm, rms_norm: their gradients are to be differentiated, which is not "
                   "supported; use LibTorch's there");
    const auto dtype_of = [context](const char* what) -> std::optional<ScalarType> {
      const auto found = context->saved_data.find(what);
      return found == context->saved_data.end()
                 ? std::nullopt
                 : std::optional(static_cast<ScalarType>(found->second.toInt()));
    };
    const variable_list saved = context->get_saved_variables();
    const Norm norm = {saved[0], {}, saved[1], saved[2]};
    const Tensor& weight = saved[3];
    const auto kind = static_cast<NormKind>(context->saved_data["kind"].toInt());
    const OptionalTensor grad_sum = gradients.size() > 1 && gradients[1].defined()
                                        ? OptionalTensor(gradients[1])
                                        : std::nullopt;
    const Tensor grad_out = gradients[0].defined() ? gradients[0] : at::zeros_like(norm.sum);
    const auto& backward = has_kernel(norm.sum, {}) ? norm_backward_on_cpu : composed_norm_backward;
    const NormGradients result =
        backward(kind, grad_out, grad_sum, norm, weight, *dtype_of("x"), dtype_of("residual"));
    const auto bias_dtype = dtype_of("bias");
    return {Tensor(),
            result.x,
            result.residual,
            result.weight.to(weight.scalar_type()),
            bias_dtype ? result.bias.to(*bias_dtype) : Tensor(),
            Tensor(),
            Tensor()};
  }
};

// The dispatcher's operations, with autograd and below it.

template <bool kAutograd>
variable_list call(NormKind kind, const Tensor& x, const OptionalTensor& residual,
                   const Tensor& weight, const OptionalTensor& bias, double eps,
                   std::optional<ScalarType> dtype) {
  if constexpr (kAutograd) {
    return NormFunction::apply(kind, x, residual, weight, bias, eps, dtype);
  } else {
    const Norm norm = norm_of(kind, x, residual, weight, bias, eps, dtype);
    return {norm.out, norm.sum};
  }
}

template <bool kAutograd>
Tensor layer_norm_kernel(const Tensor& x, const Tensor& weight, const OptionalTensor& bias,
                         double eps, std::optional<ScalarType> dtype) {
  return call<kAutograd>(NormKind::layer, x, {}, weight, bias, eps, dtype)[0];
}

template <bool kAutograd>
Tensor rms_norm_kernel(const Tensor& x, const Tensor& weight, double eps,
                       std::optional<ScalarType> dtype) {
  return call<kAutograd>(NormKind::rms, x, {}, weight, {}, eps, dtype)[0];
}

template <bool kAutograd>
std::tuple<Tensor, Tensor> add_layer_norm_kernel(const Tensor& x, const Tensor& residual,
                                                 const Tensor& weight, const OptionalTensor& bias,
                                                 double eps, std::optional<ScalarType> dtype) {
  const variable_list results =
      call<kAutograd>(NormKind::layer, x, residual, weight, bias, eps, dtype);
  return {results[1], results[0]};
}

template <bool kAutograd>
std::tuple<Tensor, Tensor> add_rms_norm_kernel(const Tensor& x, const Tensor& residual,
                                               const Tensor& weight, double eps,
                                               std::optional<ScalarType> dtype) {
  const variable_list results = call<kAutograd>(NormKind::rms, x, residual, weight, {}, eps, dtype);
  return {results[1], results[0]};
}

TORCH_LIBRARY_FRAGMENT(mantissa, library) {
  library.def(
      "layer_norm(Tensor x, Tensor weight, Tensor? bias, float eps=1e-05, *, "
      "ScalarType? dtype=None) -> Tensor");
  library.def(
      "rms_norm(Tensor x, Tensor weight, float eps=1e-06, *, ScalarType? dtype=None) -> Tensor");
  library.def(
      "add_layer_norm(Tensor x, Tensor residual, Tensor weight, Tensor? bias, float eps=1e-05, *, "
      "ScalarType? dtype=None) -> (Tensor, Tensor)");
  library.def(
      "add_rms_norm(Tensor x, Tensor residual, Tensor weight, float eps=1e-06, *, "
      "ScalarType? dtype=None) -> (Tensor, Tensor)");
}

template <bool kAutograd>
void implement(torch::Library& library) {
  library.impl("layer_norm", &layer_norm_kernel<kAutograd>);
  library.impl("rms_norm", &rms_norm_kernel<kAutograd>);
  library.impl("add_layer_norm", &add_layer_norm_kernel<kAutograd>);
  library.impl("add_rms_norm", &add_rms_norm_kernel<kAutograd>);
}

TORCH_LIBRARY_IMPL(mantissa, CompositeExplicitAutograd, library) { implement<false>(library); }

TORCH_LIBRARY_IMPL(mantissa, Autograd, library) { implement<true>(library); }

template <typename Kernel>
auto operation(const char* name, Kernel* /*signature*/) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Kernel>();
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& weight, const OptionalTensor& bias, double eps,
                  std::optional<ScalarType> dtype) {
  static const auto found = operation("mantissa::layer_norm", &layer_norm_kernel<false>);
  return found.call(x, weight, bias, eps, dtype);
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps,
                std::optional<ScalarType> dtype) {
  static const auto found = operation("mantissa::rms_norm", &rms_norm_kernel<false>);
  return found.call(x, weight, eps, dtype);
}

std::pair<Tensor, Tensor> add_layer_norm(const Tensor& x, const Tensor& residual,
                                         const Tensor& weight, const OptionalTensor& bias,
                                         double eps, std::optional<ScalarType> dtype) {
  static const auto found = operation("mantissa::add_layer_norm", &add_layer_norm_kernel<false>);
  auto [sum, out] = found.call(x, residual, weight, bias, eps, dtype);
  return {sum, out};
}

std::pair<Tensor, Tensor> add_rms_norm(const Tensor& x, const Tensor& residual,
                                       const Tensor& weight, double eps,
                                       std::optional<ScalarType> dtype) {
  static const auto found = operation("mantissa::add_rms_norm", &add_rms_norm_kernel<false>);
  auto [sum, out] = found.call(x, residual, weight, eps, dtype);
  return {sum, out};
}

}  // namespace mantissa::ops
