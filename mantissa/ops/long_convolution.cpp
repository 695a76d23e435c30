#include "mantissa/ops/long_convolution.h"

#include <algorithm>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/fft_irfft.h>
#include <ATen/ops/fft_rfft.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "mantissa/base/error.h"
#include "mantissa/ops/cpu/blocks.h"
#include "mantissa/ops/cpu/right_angle_kernel.h"
#include "mantissa/ops/parallel.h"
#include "mantissa/tensor/dtype.h"
#include "mantissa/tensor/shapes_only.h"

// Shapes: B rows of the batch, C channels, L numbers a row.
namespace mantissa::ops {
namespace {

using at::ScalarType;
using at::Tensor;
using cpu::RightAnglePlan;
using OptionalTensor = std::optional<Tensor>;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void check(const Tensor& x, const Tensor& filter, const OptionalTensor& bias) {
  MANTISSA_CHECK(x.dim() >= 2, InvalidArgument, "long_convolution: x has shape ", x.sizes(),
                 "; pass (batch, channels, length)");
  MANTISSA_CHECK(filter.dim() == 2 && filter.size(0) == x.size(-2) && filter.size(1) > 0,
                 InvalidArgument, "long_convolution: the filter has shape ", filter.sizes(),
                 " for an input of shape ", x.sizes(), "; pass (channels, taps)");
  MANTISSA_CHECK(!bias || (bias->dim() == 1 && bias->size(0) == x.size(-2)), InvalidArgument,
                 "long_convolution: the bias has shape ", bias->sizes(), "; pass the ", x.size(-2),
                 " channels of the input");
  for (const Tensor& tensor : {x, filter, bias.value_or(x)}) {
    const ScalarType dtype = tensor.scalar_type();
    MANTISSA_CHECK(tensor::is_training_dtype(dtype), InvalidArgument,
                   "long_convolution: an argument is ", dtype, "; pass FP32, BF16, FP16 or FP64");
    MANTISSA_CHECK(tensor.device() == x.device(), InvalidArgument,
                   "long_convolution: arguments are on ", x.device(), " and ", tensor.device(),
                   "; pass one device");
  }
}

// Those that meet numbers of rows of `length`.
Tensor first_taps(const Tensor& filter, int64_t length) {
  return filter.narrow(1, 0, std::min(length, filter.size(1)));
}

// Rows (b, c) of a CPU tensor (B, C, L) in FP32, BF16 or FP16, of contiguous numbers.
class Rows {
 public:
  explicit Rows(const Tensor& tensor)
      : tensor_(tensor.stride(2) == 1 ? tensor : tensor.contiguous()),
        dtype_(tensor.scalar_type()) {}

  // With zeros after the row's numbers, as many as asked for.
  const float* read(int64_t b, int64_t c, int64_t size, float* buffer) const {
    const int64_t length = tensor_.size(2);
    if (dtype_ == at::kFloat && size == length) {
      return tensor_.const_data_ptr<float>() + begin(b, c);
    }
    const int64_t count = std::min(length, size);
    const float* numbers = cpu::widen(tensor_.const_data_ptr(), dtype_, begin(b, c), count, buffer);
    if (numbers != buffer) {
      std::copy_n(numbers, count, buffer);
    }
    std::fill(buffer + count, buffer + size, 0.0F);
    return buffer;
  }

  // Where `size` numbers are to be put, of which `store` takes the row's.
  float* place(int64_t b, int64_t c, int64_t size, float* buffer) const {
    return dtype_ == at::kFloat && size == tensor_.size(2)
               ? tensor_.mutable_data_ptr<float>() + begin(b, c)
               : buffer;
  }
  void store(int64_t b, int64_t c, int64_t size, const float* numbers) const {
    if (dtype_ != at::kFloat || size != tensor_.size(2)) {
      cpu::narrow(numbers, tensor_.mutable_data_ptr(), dtype_, begin(b, c),
                  std::min(size, tensor_.size(2)));
    }
  }

 private:
  int64_t begin(int64_t b, int64_t c) const {
    return b * tensor_.stride(0) + c * tensor_.stride(1);
  }

  const Tensor tensor_;
  const ScalarType dtype_;
};

enum class Pass : uint8_t { forward, backward };

// What a thread works on, while the call lasts: with long rows too much to keep.
class Buffers {
 public:
  Buffers(int64_t size, Pass pass)
      : memory_(at::empty({size * (pass == Pass::forward ? 6 : 11)}, at::kFloat)),
        row(memory_.mutable_data_ptr<float>()),
        out(row + size),
        work(out + size),
        spectrum(work + 2 * size),
        more(spectrum + 2 * size),
        more_work(more + size),
        sum(more_work + 2 * size) {}

 private:
  const Tensor memory_;

 public:
  float* const row;
  float* const out;
  float* const work;
  float* const spectrum;
  // In backward alone:
  float* const more;
  float* const more_work;
  float* const sum;
};

Tensor as_batch(const Tensor& x) {
  int64_t batch = 1;
  for (const int64_t size : x.sizes().slice(0, static_cast<size_t>(x.dim() - 2))) {
    batch *= size;
  }
  return x.reshape({batch, x.size(-2), x.size(-1)});
}

// The spectra of the filters with the bias in the first tap: it multiplies what that does.
class Filters {
 public:
  Filters(const RightAnglePlan& plan, int64_t length, const Tensor& filter,
          const OptionalTensor& bias)
      : plan_(plan),
        rows_(first_taps(filter, length).unsqueeze(0)),
        bias_(bias ? bias->to(at::kFloat).contiguous() : Tensor()) {}

  const float* spectrum(int64_t c, const Buffers& buffers) const {
    const float* taps = rows_.read(0, c, plan_.size(), buffers.row);
    if (bias_.defined()) {
      if (taps != buffers.row) {
        std::copy_n(taps, plan_.size(), buffers.row);
      }
      buffers.row[0] += bias_.const_data_ptr<float>()[c];
      taps = buffers.row;
    }
    cpu::filter_spectrum(plan_, taps, buffers.work, buffers.spectrum);
    return buffers.spectrum;
  }

 private:
  const RightAnglePlan& plan_;
  const Rows rows_;
  const Tensor bias_;
};

template <typename Call>
void for_channels(int64_t channels, const RightAnglePlan& plan, Pass pass, const Call& call) {
  std::vector<Buffers> counted;  // with shapes only, where no thread makes its own
  if (tensor::is_shapes_only()) {
    const int64_t threads = std::min<int64_t>(channels, at::get_num_threads());
    for (int64_t thread = 0; thread < threads; ++thread) {
      counted.emplace_back(plan.size(), pass);
    }
  }
  parallel_for(0, channels, 1, [&](int64_t begin, int64_t end) {
    const Buffers buffers(plan.size(), pass);
    for (int64_t c = begin; c < end; ++c) {
      call(c, buffers);
    }
  });
}

Tensor convolve_on_cpu(const Tensor& x, const Tensor& filter, const OptionalTensor& bias) {
  Tensor out = at::empty(x.sizes(), x.options());
  if (x.numel() == 0) {
    return out;
  }
  const Rows rows(x);
  const Rows outs(out);
  const RightAnglePlan plan(x.size(2));
  const int64_t size = plan.size();
  const Filters filters(plan, x.size(2), filter, bias);
  for_channels(x.size(1), plan, Pass::forward, [&](int64_t c, const Buffers& buffers) {
    const float* spectrum = filters.spectrum(c, buffers);
    for (int64_t b = 0; b < x.size(0); ++b) {
      float* numbers = outs.place(b, c, size, buffers.out);
      cpu::convolve(plan, spectrum, rows.read(b, c, size, buffers.row), buffers.work, numbers);
      outs.store(b, c, size, numbers);
    }
  });
  return out;
}

struct Wanted {
  bool x;
  bool filter;  // or bias
};

struct Gradients {
  Tensor x;
  Tensor filter;
  Tensor bias;  // FP32 or FP64
};

// The gradient of the bias is that of the first tap.
Gradients gradients_on_cpu(const Tensor& grad_out, const Tensor& x, const Tensor& filter,
                           const OptionalTensor& bias, const Wanted& wanted) {
  Gradients result;
  if (wanted.x) {
    result.x = at::empty(x.sizes(), x.options());
  }
  if (wanted.filter) {
    result.filter = at::zeros(filter.sizes(), filter.options());
    result.bias = at::zeros({x.size(1)}, filter.options().dtype(at::kFloat));
  }
  if (x.numel() == 0) {
    return result;
  }
  const Rows grad_outs(grad_out);
  const Rows rows(x);
  const Rows grad_rows(wanted.x ? result.x : x);
  const Tensor taps = wanted.filter ? first_taps(result.filter, x.size(2)) : filter;
  const Rows grad_filters(taps.unsqueeze(0));
  float* grad_bias = wanted.filter ? result.bias.mutable_data_ptr<float>() : nullptr;
  const RightAnglePlan plan(x.size(2));
  const int64_t size = plan.size();
  const Filters filters(plan, x.size(2), filter, bias);
  for_channels(x.size(1), plan, Pass::backward, [&](int64_t c, const Buffers& buffers) {
    const float* spectrum = wanted.x ? filters.spectrum(c, buffers) : nullptr;
    std::fill_n(buffers.sum, 2 * size, 0.0F);
    for (int64_t b = 0; b < x.size(0); ++b) {
      const float* grad = grad_outs.read(b, c, size, buffers.row);
      float* numbers = wanted.x ? grad_rows.place(b, c, size, buffers.out) : nullptr;
      if (wanted.filter) {
        cpu::correlate_both(plan, spectrum, grad, rows.read(b, c, size, buffers.more), buffers.work,
                            buffers.more_work, buffers.sum, numbers);
      } else {
        cpu::correlate(plan, spectrum, grad, buffers.work, numbers);
      }
      if (wanted.x) {
        grad_rows.store(b, c, size, numbers);
      }
    }
    if (wanted.filter) {
      float* numbers = grad_filters.place(0, c, size, buffers.out);
      cpu::filter_gradient(plan, buffers.sum, buffers.work, numbers);
      grad_bias[c] = numbers[0];
      grad_filters.store(0, c, size, numbers);
    }
  });
  return result;
}

// As ATen operations, on any device and in FP64.

ScalarType wide_dtype(const Tensor& x, const Tensor& filter, const OptionalTensor& bias) {
  return x.scalar_type() == at::kDouble || filter.scalar_type() == at::kDouble ||
                 (bias && bias->scalar_type() == at::kDouble)
             ? at::kDouble
             : at::kFloat;
}

// Of rows of real numbers, without wrap-around in convolutions of their first L.
Tensor spectrum_of(const Tensor& rows, int64_t length, ScalarType wide) {
  return at::fft_rfft(rows.to(wide), 2 * length);
}

Tensor rows_of(const Tensor& spectrum, int64_t length) {
  return at::fft_irfft(spectrum, 2 * length).narrow(-1, 0, length);
}

Tensor composed_convolution(const Tensor& x, const Tensor& filter, const OptionalTensor& bias) {
  if (x.numel() == 0) {
    return at::empty(x.sizes(), x.options());
  }
  const ScalarType wide = wide_dtype(x, filter, bias);
  const int64_t length = x.size(2);
  const Tensor filter_spectrum = spectrum_of(first_taps(filter, length), length, wide);
  Tensor out = rows_of(spectrum_of(x, length, wide).mul(filter_spectrum), length);
  if (bias) {
    out = out.add(x.to(wide).mul(bias->to(wide).unsqueeze(1)));
  }
  return out.to(x.scalar_type());
}

Gradients composed_gradients(const Tensor& grad_out, const Tensor& x, const Tensor& filter,
                             const OptionalTensor& bias, const Wanted& wanted) {
  const ScalarType wide = wide_dtype(x, filter, bias);
  const int64_t length = x.size(2);
  Gradients result;
  if (x.numel() == 0) {
    result.x = at::empty(x.sizes(), x.options());
    result.filter = at::zeros(filter.sizes(), filter.options());
    result.bias = at::zeros({x.size(1)}, filter.options().dtype(wide));
    return result;
  }
  const Tensor grad_spectrum = spectrum_of(grad_out, length, wide);
  if (wanted.x) {
    const Tensor filter_spectrum = spectrum_of(first_taps(filter, length), length, wide);
    Tensor grad = rows_of(grad_spectrum.mul(filter_spectrum.conj()), length);
    if (bias) {
      grad = grad.add(grad_out.to(wide).mul(bias->to(wide).unsqueeze(1)));
    }
    result.x = grad.to(x.scalar_type());
  }
  if (wanted.filter) {
    const Tensor grad =
        rows_of(grad_spectrum.mul(spectrum_of(x, length, wide).conj()).sum(0), length);
    result.bias = grad.select(1, 0);
    result.filter = at::zeros(filter.sizes(), filter.options());
    first_taps(result.filter, length).copy_(first_taps(grad, filter.size(1)));
  }
  return result;
}

bool has_kernel(const Tensor& x, const Tensor& filter, const OptionalTensor& bias) {
  return x.is_cpu() && wide_dtype(x, filter, bias) == at::kFloat;
}

Tensor convolution_of(const Tensor& x, const Tensor& filter, const OptionalTensor& bias) {
  check(x, filter, bias);
  const at::AutoDispatchBelowADInplaceOrView below;
  const Tensor batch = as_batch(x);
  return (has_kernel(x, filter, bias) ? convolve_on_cpu : composed_convolution)(batch, filter, bias)
      .view(x.sizes());
}

struct LongConvolution : torch::autograd::Function<LongConvolution> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& filter,
                        const OptionalTensor& bias) {
    context->save_for_backward({x, filter, bias.value_or(Tensor())});
    return convolution_of(x, filter, bias);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    MANTISSA_CHECK(!at::GradMode::is_enabled(), Unsupported,
                   "long_convolution: its gradients are to be differentiated, which is not "
                   "supported; use torch's rfft and irfft there");
    const variable_list saved = context->get_saved_variables();
    const Tensor& x = saved[0];
    const Tensor& filter = saved[1];
    const OptionalTensor bias = saved[2].defined() ? OptionalTensor(saved[2]) : std::nullopt;
    const Wanted wanted = {
        context->needs_input_grad(0),
        context->needs_input_grad(1) || (bias.has_value() && context->needs_input_grad(2))};
    const auto& backward = has_kernel(x, filter, bias) ? gradients_on_cpu : composed_gradients;
    Gradients result = backward(as_batch(gradients[0]), as_batch(x), filter, bias, wanted);
    return {wanted.x ? result.x.view(x.sizes()) : Tensor(), result.filter,
            bias && wanted.filter ? result.bias.to(bias->scalar_type()) : Tensor()};
  }
};

Tensor long_convolution_with_autograd(const Tensor& x, const Tensor& filter,
                                      const OptionalTensor& bias) {
  check(x, filter, bias);
  return LongConvolution::apply(x, filter, bias);
}

TORCH_LIBRARY_FRAGMENT(mantissa, library) {
  library.def("long_convolution(Tensor x, Tensor filter, Tensor? bias=None) -> Tensor");
}

TORCH_LIBRARY_IMPL(mantissa, CompositeExplicitAutograd, library) {
  library.impl("long_convolution", &convolution_of);
}

TORCH_LIBRARY_IMPL(mantissa, Autograd, library) {
  library.impl("long_convolution", &long_convolution_with_autograd);
}

}  // namespace

Tensor long_convolution(const Tensor& x, const Tensor& filter, const OptionalTensor& bias) {
  static const auto operation =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("mantissa::long_convolution", "")
          .typed<Tensor(const Tensor&, const Tensor&, const OptionalTensor&)>();
  return operation.call(x, filter, bias);
}

}  // namespace mantissa::ops
