#include "mantissa/ops/linear_cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "mantissa/base/error.h"
#include "mantissa/ops/composed/linear_cross_entropy.h"
#include "mantissa/ops/compute_path.h"
#include "mantissa/ops/cpu/cross_entropy_rows.h"
#include "mantissa/ops/panel_product.h"
#include "mantissa/ops/parallel.h"
#include "mantissa/ops/tf32.h"
#include "mantissa/tensor/dtype.h"

// Shapes: N rows, D features, V classes.
namespace mantissa::ops {
namespace {

using at::Tensor;
using numerics::Format;
using OptionalTensor = std::optional<Tensor>;
using Wanted = std::array<bool, 3>;  // the gradients of input, weight, bias
// The loss, and the gradients in FP32 (FP64), undefined where they are not wanted.
using Results = std::tuple<Tensor, Tensor, Tensor, Tensor>;

constexpr const char* kName = "linear_cross_entropy";

// Each chunk packs the whole weight for its products and adds to the whole of the weight's
// gradient, so it should have many rows; with few classes it should stay in the cache.
constexpr int64_t kLeastRows = 384;
constexpr int64_t kLeastRowsOfDevices = 4096;  // which products need to be fast there
constexpr int64_t kLogits = int64_t{1} << 20;  // 4 MiB

int64_t rows_of_chunk(int64_t rows, int64_t classes, at::Device device = at::kCPU) {
  const int64_t least = device.is_cpu() ? kLeastRows : kLeastRowsOfDevices;
  const int64_t most = std::max(least, kLogits / classes);
  const int64_t chunks = std::max<int64_t>(1, (rows + most - 1) / most);
  return std::max<int64_t>(1, (rows + chunks - 1) / chunks);
}

void check_shapes(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                  const Tensor& targets) {
  MANTISSA_CHECK(input.dim() == 2, InvalidArgument, kName, ": input has shape ", input.sizes(),
                 "; pass (rows, features)");
  MANTISSA_CHECK(weight.dim() == 2 && weight.size(1) == input.size(1) && weight.numel() > 0,
                 InvalidArgument, kName, ": weight has shape ", weight.sizes(), "; pass (classes, ",
                 input.size(1), ") for input of shape ", input.sizes());
  MANTISSA_CHECK(!bias || (bias->dim() == 1 && bias->size(0) == weight.size(0)), InvalidArgument,
                 kName, ": bias has shape ", bias->sizes(), "; pass one number for each of the ",
                 weight.size(0), " classes");
  MANTISSA_CHECK(targets.dim() == 1 && targets.size(0) == input.size(0), InvalidArgument, kName,
                 ": targets have shape ", targets.sizes(), "; pass one for each of the ",
                 input.size(0), " rows of input");
}

void check_types(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                 const Tensor& targets) {
  const at::ScalarType dtype = input.scalar_type();
  MANTISSA_CHECK(tensor::is_training_dtype(dtype), InvalidArgument, kName, ": input is ", dtype,
                 "; pass Float, BFloat16, Half or Double");
  MANTISSA_CHECK(weight.scalar_type() == dtype, InvalidArgument, kName, ": weight is ",
                 weight.scalar_type(), " and input ", dtype, "; pass one dtype");
  MANTISSA_CHECK(!bias || bias->scalar_type() == dtype, InvalidArgument, kName, ": bias is ",
                 bias->scalar_type(), " and input ", dtype, "; pass one dtype");
  MANTISSA_CHECK(targets.scalar_type() == at::kLong, InvalidArgument, kName, ": targets are ",
                 targets.scalar_type(), "; pass Long");
  const at::Device device = input.device();
  MANTISSA_CHECK(weight.device() == device && targets.device() == device &&
                     (!bias || bias->device() == device),
                 InvalidArgument, kName, ": input is on ", device, ", weight on ", weight.device(),
                 ", targets on ", targets.device(),
                 bias ? concat(", bias on ", bias->device()) : "", "; pass one device");
}

// The number of rows that count.
int64_t check_targets(const int64_t* targets, int64_t rows, int64_t classes, int64_t ignored) {
  int64_t count = 0;
  for (int64_t i = 0; i < rows; ++i) {
    if (targets[i] == ignored) {
      continue;
    }
    MANTISSA_CHECK(targets[i] >= 0 && targets[i] < classes, InvalidArgument, kName, ": target ",
                   targets[i], " at index ", i, " is no class; pass 0 to ", classes - 1,
                   ", or ignore_index, ", ignored);
    ++count;
  }
  return count;
}

LinearCrossEntropyOptions checked_options(int64_t reduction, int64_t ignore_index,
                                          double label_smoothing) {
  MANTISSA_CHECK(reduction == at::Reduction::Mean || reduction == at::Reduction::Sum,
                 InvalidArgument, kName, ": reduction is ",
                 reduction == at::Reduction::None ? "None" : concat(reduction),
                 "; pass Mean or Sum: the gradients are computed before that of each row is known");
  MANTISSA_CHECK(label_smoothing >= 0 && label_smoothing <= 1, InvalidArgument, kName,
                 ": label_smoothing is ", label_smoothing, "; pass 0 to 1");
  return {static_cast<at::Reduction::Reduction>(reduction), ignore_index, label_smoothing};
}

Factor transposed(const Factor& factor) {
  return {factor.data, factor.format, factor.col_stride, factor.row_stride};
}

Factor rows_from(const Factor& factor, int64_t row) {
  const int64_t bytes = numerics::info(factor.format).storage_bits / 8;
  return {static_cast<const char*>(factor.data) + row * factor.row_stride * bytes, factor.format,
          factor.row_stride, factor.col_stride};
}

/// On the CPU, by panels.
class PanelLoss {
 public:
  PanelLoss(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
            const Tensor& targets, const LinearCrossEntropyOptions& options, const Wanted& wanted)
      : options_(options),
        rows_(input.size(0)),
        features_(input.size(1)),
        classes_(weight.size(0)),
        chunk_(rows_of_chunk(rows_, classes_)),
        input_(in_lines(input)),
        weight_(in_lines(weight)),
        bias_(bias ? bias->to(at::kFloat).contiguous() : Tensor()),
        targets_(targets.contiguous()),
        format_(factor_format(input.scalar_type())) {
    const auto fp32 = input.options().dtype(at::kFloat);
    if (wanted[0]) {
      grad_input_ = at::empty({rows_, features_}, fp32);
    }
    if (wanted[1]) {
      // The first chunk's is stored, not added.
      grad_weight_ = rows_ > 0 ? at::empty({classes_, features_}, fp32)
                               : at::zeros({classes_, features_}, fp32);
    }
    if (wanted[2]) {
      grad_bias_ = at::zeros({classes_}, fp32);
    }
    logits_ = at::empty({std::min(chunk_, rows_), classes_}, fp32);
  }

  Results run() {
    const int64_t count =
        check_targets(targets_.const_data_ptr<int64_t>(), rows_, classes_, options_.ignore_index);
    const bool is_mean = options_.reduction == at::Reduction::Mean;
    scale_ = is_mean ? static_cast<float>(1 / static_cast<double>(count)) : 1;
    std::vector<double> losses(static_cast<size_t>(rows_));
    for (int64_t row = 0; row < rows_; row += chunk_) {
      run_chunk(row, std::min(chunk_, rows_ - row), losses.data() + row);
    }
    double total = 0;
    for (const double loss : losses) {
      total += loss;
    }
    const Tensor loss = at::full({}, is_mean ? total / static_cast<double>(count) : total,
                                 at::TensorOptions(at::kFloat));
    return {loss, grad_input_, grad_weight_, grad_bias_};
  }

 private:
  static Format factor_format(at::ScalarType dtype) {
    if (dtype != at::kFloat) {
      return tensor::format_of(dtype);
    }
    return tf32() == Tf32::on ? Format::tf32 : Format::fp32;
  }

  static Factor factor(const Tensor& matrix, Format format) {
    return {matrix.const_data_ptr(), format, matrix.stride(0), matrix.stride(1)};
  }

  void run_chunk(int64_t row, int64_t rows, double* losses) {
    const Factor x = rows_from(factor(input_, format_), row);
    const Factor w = factor(weight_, format_);
    auto* logits = logits_.mutable_data_ptr<float>();
    ProductOutput to_logits = {logits, Format::fp32, classes_};
    if (bias_.defined()) {
      to_logits.beta = 1;
      to_logits.addend = bias_.const_data_ptr();
    }
    panel_product(x, transposed(w), rows, classes_, features_, to_logits);
    run_rows(row, rows, losses);
    const Factor gradient = {logits, format_ == Format::tf32 ? Format::tf32 : Format::fp32,
                             classes_, 1};
    if (grad_input_.defined()) {
      panel_product(
          gradient, w, rows, features_, classes_,
          {grad_input_.mutable_data_ptr<float>() + row * features_, Format::fp32, features_});
    }
    if (grad_weight_.defined()) {
      ProductOutput to_weight = {grad_weight_.mutable_data_ptr(), Format::fp32, features_};
      if (row > 0) {
        to_weight.beta = 1;
        to_weight.addend = grad_weight_.const_data_ptr();
        to_weight.addend_row_stride = features_;
      }
      panel_product(transposed(gradient), x, classes_, features_, rows, to_weight);
    }
    if (grad_bias_.defined()) {
      cpu::add_column_sums(logits, rows, classes_, grad_bias_.mutable_data_ptr<float>());
    }
  }

  void run_rows(int64_t row, int64_t rows, double* losses) const {
    constexpr int64_t kGrain = int64_t{1} << 15;  // logits
    const bool has_gradient =
        grad_input_.defined() || grad_weight_.defined() || grad_bias_.defined();
    auto* logits = logits_.mutable_data_ptr<float>();
    const auto* targets = targets_.const_data_ptr<int64_t>() + row;
    parallel_for(0, rows, std::max<int64_t>(1, kGrain / classes_), [&](int64_t begin, int64_t end) {
      const cpu::CrossEntropyRows part = {
          logits + begin * classes_, end - begin,           classes_,
          targets + begin,           options_.ignore_index, options_.label_smoothing};
      if (has_gradient) {
        cpu::cross_entropy_rows_with_gradient(part, scale_, losses + begin);
      } else {
        cpu::cross_entropy_rows(part, losses + begin);
      }
    });
  }

  const LinearCrossEntropyOptions& options_;
  const int64_t rows_;
  const int64_t features_;
  const int64_t classes_;
  const int64_t chunk_;
  const Tensor input_;
  const Tensor weight_;
  const Tensor bias_;  // in FP32
  const Tensor targets_;
  const Format format_;  // of factors
  Tensor grad_input_;
  Tensor grad_weight_;
  Tensor grad_bias_;
  Tensor logits_;  // of a chunk, later their gradients
  float scale_ = 1;
};

Results by_operations(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                      const Tensor& targets, const LinearCrossEntropyOptions& options,
                      const Wanted& wanted) {
  const LinearCrossEntropy result =
      composed::linear_cross_entropy(input, weight, bias, targets, options, wanted,
                                     rows_of_chunk(input.size(0), weight.size(0), input.device()));
  return {result.loss, result.grad_input, result.grad_weight, result.grad_bias};
}

// The kernels of mantissa::_linear_cross_entropy.

Results forward(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                const Tensor& targets, int64_t reduction, int64_t ignore_index,
                double label_smoothing, Wanted wanted) {
  return by_operations(input, weight, bias, targets,
                       checked_options(reduction, ignore_index, label_smoothing), wanted);
}

Results forward_cpu(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                    const Tensor& targets, int64_t reduction, int64_t ignore_index,
                    double label_smoothing, Wanted wanted) {
  const auto options = checked_options(reduction, ignore_index, label_smoothing);
  const at::ScalarType dtype = input.scalar_type();
  if (dtype == at::kFloat || (tensor::is_16bit(dtype) && widens(tensor::format_of(dtype)))) {
    return PanelLoss(input, weight, bias, targets, options, wanted).run();
  }
  const Tensor dense = targets.contiguous();
  check_targets(dense.const_data_ptr<int64_t>(), dense.numel(), weight.size(0), ignore_index);
  return by_operations(input, weight, bias, dense, options, wanted);
}

Results forward_meta(const Tensor& input, const Tensor& weight, const OptionalTensor& /*bias*/,
                     const Tensor& /*targets*/, int64_t reduction, int64_t ignore_index,
                     double label_smoothing, Wanted wanted) {
  (void)checked_options(reduction, ignore_index, label_smoothing);
  const auto wide =
      input.options().dtype(input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  return {at::empty({}, wide), wanted[0] ? at::empty(input.sizes(), wide) : Tensor(),
          wanted[1] ? at::empty(weight.sizes(), wide) : Tensor(),
          wanted[2] ? at::empty({weight.size(0)}, wide) : Tensor()};
}

Results call_forward(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                     const Tensor& targets, int64_t reduction, int64_t ignore_index,
                     double label_smoothing, const Wanted& wanted) {
  static const auto operation = c10::Dispatcher::singleton()
                                    .findSchemaOrThrow("mantissa::_linear_cross_entropy", "")
                                    .typed<decltype(forward)>();
  check_shapes(input, weight, bias, targets);
  check_types(input, weight, bias, targets);
  const at::AutoDispatchBelowADInplaceOrView below;
  return operation.call(input, weight, bias, targets, reduction, ignore_index, label_smoothing,
                        wanted);
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Gradients that cannot be differentiated.
struct LastGradient : torch::autograd::Function<LastGradient> {
  static Tensor forward(AutogradContext* /*context*/, const Tensor& gradient) {
    return gradient.view_as(gradient);
  }
  static variable_list backward(AutogradContext* /*context*/, const variable_list& /*gradients*/) {
    throw Unsupported(concat(kName,
                             ": its gradients were differentiated, which is not supported; use "
                             "at::cross_entropy_loss of at::linear there"));
  }
};

// Rounded once, where the factor is a power of two.
Tensor scaled(const Tensor& gradient, const Tensor& factor, at::ScalarType dtype) {
  const bool is_one = factor.is_cpu() && factor.item<double>() == 1;
  return (is_one ? gradient : gradient.mul(factor)).to(dtype);
}

struct LinearCrossEntropyFunction : torch::autograd::Function<LinearCrossEntropyFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& input, const Tensor& weight,
                        const OptionalTensor& bias, const Tensor& targets, int64_t reduction,
                        int64_t ignore_index, double label_smoothing) {
    const Wanted wanted = {input.requires_grad(), weight.requires_grad(),
                           bias && bias->requires_grad()};
    auto [loss, grad_input, grad_weight, grad_bias] = call_forward(
        input, weight, bias, targets, reduction, ignore_index, label_smoothing, wanted);
    context->save_for_backward({grad_input, grad_weight, grad_bias});
    context->saved_data["dtype"] = static_cast<int64_t>(input.scalar_type());
    return loss;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto dtype = static_cast<at::ScalarType>(context->saved_data["dtype"].toInt());
    variable_list results(7);
    const variable_list saved = context->get_saved_variables();
    for (size_t i = 0; i < saved.size(); ++i) {
      if (!saved[i].defined()) {
        continue;
      }
      const bool again = at::GradMode::is_enabled();
      const at::NoGradGuard no_grad;
      results[i] = scaled(saved[i], gradients[0].detach(), dtype);
      if (again) {
        const at::AutoGradMode grad(true);
        results[i] = LastGradient::apply(results[i].detach().requires_grad_());
      }
    }
    return results;
  }
};

// The kernels of mantissa::linear_cross_entropy.

Tensor loss_alone(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                  const Tensor& targets, int64_t reduction, int64_t ignore_index,
                  double label_smoothing) {
  return std::get<0>(
      call_forward(input, weight, bias, targets, reduction, ignore_index, label_smoothing, {}));
}

Tensor loss_with_autograd(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                          const Tensor& targets, int64_t reduction, int64_t ignore_index,
                          double label_smoothing) {
  const bool wanted =
      at::GradMode::is_enabled() &&
      (input.requires_grad() || weight.requires_grad() || (bias && bias->requires_grad()));
  return wanted
             ? LinearCrossEntropyFunction::apply(input, weight, bias, targets, reduction,
                                                 ignore_index, label_smoothing)
             : loss_alone(input, weight, bias, targets, reduction, ignore_index, label_smoothing);
}

TORCH_LIBRARY_FRAGMENT(mantissa, library) {
  library.def(
      "linear_cross_entropy(Tensor input, Tensor weight, Tensor? bias, Tensor targets, "
      "int reduction=1, int ignore_index=-100, float label_smoothing=0.0) -> Tensor");
  library.def(
      "_linear_cross_entropy(Tensor input, Tensor weight, Tensor? bias, Tensor targets, "
      "int reduction, int ignore_index, float label_smoothing, bool[3] wanted) -> "
      "(Tensor, Tensor, Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(mantissa, CompositeExplicitAutograd, library) {
  library.impl("linear_cross_entropy", &loss_alone);
  library.impl("_linear_cross_entropy", &forward);
}

TORCH_LIBRARY_IMPL(mantissa, Autograd, library) {
  library.impl("linear_cross_entropy", &loss_with_autograd);
}

TORCH_LIBRARY_IMPL(mantissa, CPU, library) { library.impl("_linear_cross_entropy", &forward_cpu); }

// The key of tensor::ShapesOnly, which would take the composition.
TORCH_LIBRARY_IMPL(mantissa, FPGA, library) { library.impl("_linear_cross_entropy", &forward_cpu); }

TORCH_LIBRARY_IMPL(mantissa, Meta, library) {
  library.impl("_linear_cross_entropy", &forward_meta);
}

}  // namespace

Tensor linear_cross_entropy(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                            const Tensor& targets, const LinearCrossEntropyOptions& options) {
  static const auto operation = c10::Dispatcher::singleton()
                                    .findSchemaOrThrow("mantissa::linear_cross_entropy", "")
                                    .typed<decltype(loss_alone)>();
  return operation.call(input, weight, bias, targets, options.reduction, options.ignore_index,
                        options.label_smoothing);
}

LinearCrossEntropy linear_cross_entropy_reference(const Tensor& input, const Tensor& weight,
                                                  const OptionalTensor& bias, const Tensor& targets,
                                                  const LinearCrossEntropyOptions& options) {
  check_shapes(input, weight, bias, targets);
  const int64_t rows = input.size(0);
  const int64_t features = input.size(1);
  const int64_t classes = weight.size(0);
  const auto doubles = [](const Tensor& tensor) { return tensor.to(at::kDouble).contiguous(); };
  const Tensor x = doubles(input);
  const Tensor w = doubles(weight);
  const Tensor b = bias ? doubles(*bias) : at::zeros({classes}, at::kDouble);
  const Tensor t = targets.contiguous();
  LinearCrossEntropy result = {at::zeros({}, at::kDouble), at::zeros({rows, features}, at::kDouble),
                               at::zeros({classes, features}, at::kDouble),
                               at::zeros({classes}, at::kDouble)};
  auto* grad_x = result.grad_input.mutable_data_ptr<double>();
  auto* grad_w = result.grad_weight.mutable_data_ptr<double>();
  auto* grad_b = result.grad_bias.mutable_data_ptr<double>();
  const int64_t count =
      check_targets(t.const_data_ptr<int64_t>(), rows, classes, options.ignore_index);
  const double share =
      options.reduction == at::Reduction::Mean ? 1 / static_cast<double>(count) : 1;
  const double smoothing = options.label_smoothing;
  double total = 0;
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t target = t.const_data_ptr<int64_t>()[i];
    if (target == options.ignore_index) {
      continue;
    }
    const double* x_row = x.const_data_ptr<double>() + i * features;
    std::vector<double> logits(static_cast<size_t>(classes));
    double most = -std::numeric_limits<double>::infinity();
    double mean = 0;
    for (int64_t j = 0; j < classes; ++j) {
      double sum = b.const_data_ptr<double>()[j];
      for (int64_t k = 0; k < features; ++k) {
        sum += x_row[k] * w.const_data_ptr<double>()[j * features + k];
      }
      logits[static_cast<size_t>(j)] = sum;
      most = std::max(most, sum);
      mean += sum / static_cast<double>(classes);
    }
    double sum = 0;
    for (const double logit : logits) {
      sum += std::exp(logit - most);
    }
    const double log_of_sum = most + std::log(sum);
    total += (1 - smoothing) * (log_of_sum - logits[static_cast<size_t>(target)]) +
             smoothing * (log_of_sum - mean);
    for (int64_t j = 0; j < classes; ++j) {
      const double wish =
          (j == target ? 1 - smoothing : 0) + smoothing / static_cast<double>(classes);
      const double gradient =
          share * (std::exp(logits[static_cast<size_t>(j)] - log_of_sum) - wish);
      grad_b[j] += gradient;
      for (int64_t k = 0; k < features; ++k) {
        grad_x[i * features + k] += gradient * w.const_data_ptr<double>()[j * features + k];
        grad_w[j * features + k] += gradient * x_row[k];
      }
    }
  }
  result.loss.fill_(total * share);  // NaN for the mean of nothing, 0 times infinity
  return result;
}

}  // namespace mantissa::ops
