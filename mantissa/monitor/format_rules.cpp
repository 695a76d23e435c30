#include <algorithm>
#include <array>

#include "mantissa/base/error.h"
#include "mantissa/monitor/call_values.h"
#include "mantissa/monitor/lint_rules.h"
#include "mantissa/numerics/ulp.h"

namespace mantissa::monitor {
namespace {

using numerics::Format;

bool contains(const auto& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The two matrices of a product, by the names that its schema gives them.
struct Product {
  std::string_view operation;
  std::string_view left;
  std::string_view right;
};

constexpr std::array kProducts = {Product{"mm", "self", "mat2"}, Product{"addmm", "mat1", "mat2"},
                                  Product{"bmm", "self", "mat2"},
                                  Product{"baddbmm", "batch1", "batch2"}};

// cuBLAS and cuDNN: sizes in multiples of 16 bytes.
constexpr int64_t kTensorCoreMultiple = 8;

struct Size {
  std::string name;
  int64_t value;
};

std::vector<Size> sizes_of_product(const TracedCall& call, const Product& product) {
  const at::Tensor left = tensor_argument(call, product.left);
  const at::Tensor right = tensor_argument(call, product.right);
  if (!format_16bit(left) || !format_16bit(right)) {
    return {};
  }
  std::vector<Size> sizes = {
      {"rows", left.size(-2)}, {"inner size", left.size(-1)}, {"columns", right.size(-1)}};
  // A product with a vector does not use Tensor Cores, whatever its sizes.
  const bool is_matrix =
      std::all_of(sizes.begin(), sizes.end(), [](const Size& size) { return size.value > 1; });
  return is_matrix ? sizes : std::vector<Size>();
}

std::vector<Size> channels(const TracedCall& call) {
  const at::Tensor weight = tensor_argument(call, "weight");
  const c10::IValue* groups = argument(call, "groups");
  if (!format_16bit(weight) || weight.dim() < 3 || groups == nullptr || groups->toInt() != 1) {
    return {};
  }
  return {{"channels", weight.size(0)}, {"channels", weight.size(1)}};
}

constexpr std::array<std::string_view, 18> kLosses = {"binary_cross_entropy",
                                                      "binary_cross_entropy_with_logits",
                                                      "cosine_embedding_loss",
                                                      "cross_entropy_loss",
                                                      "ctc_loss",
                                                      "hinge_embedding_loss",
                                                      "huber_loss",
                                                      "kl_div",
                                                      "l1_loss",
                                                      "margin_ranking_loss",
                                                      "mse_loss",
                                                      "multi_margin_loss",
                                                      "multilabel_margin_loss",
                                                      "nll_loss",
                                                      "nll_loss2d",
                                                      "poisson_nll_loss",
                                                      "smooth_l1_loss",
                                                      "soft_margin_loss"};

}  // namespace

Hits check_half_fft(const TracedCall& call, const LintOptions& /*options*/) {
  const std::string name = base_name(call);
  const at::Tensor x = tensor_argument(call, "self");
  const auto format = format_16bit(x);
  if (!format || !(name.starts_with("fft_") || name.starts_with("_fft_"))) {
    return {};
  }
  return {{.format = format_name(x),
           .value = concat("length ", x.dim() > 0 ? x.size(-1) : 1),
           .consequence = *format == Format::fp16
                              ? "LibTorch has no fp16 transform on CPU, and on GPUs those of "
                                "powers of two alone: elsewhere it throws"
                              : "LibTorch has no bf16 transform: it throws",
           .remedy = "fft=fp32 in the policy, or transform x.to(at::kFloat)"}};
}

Hits check_tensor_core_size(const TracedCall& call, const LintOptions& /*options*/) {
  if (call.in_backward || !call.operation) {
    return {};  // the sizes of backward are those of forward
  }
  const std::string name = base_name(call);
  std::vector<Size> sizes;
  for (const Product& product : kProducts) {
    if (product.operation == name) {
      sizes = sizes_of_product(call, product);
    }
  }
  if (name == "convolution") {
    sizes = channels(call);
  }
  Hits hits;
  for (const Size& size : sizes) {
    if (size.value % kTensorCoreMultiple != 0) {
      const int64_t next = (size.value / kTensorCoreMultiple + 1) * kTensorCoreMultiple;
      hits.push_back({.severity = Severity::note,
                      .format = format_name(result(call).defined() ? result(call)
                                                                   : tensors_in(call.inputs)[0]),
                      .value = concat(size.value, " ", size.name),
                      .consequence = concat(size.value, " is no multiple of ", kTensorCoreMultiple,
                                            ": slower on Tensor Cores; results are the same"),
                      .remedy = concat("pad to ", next)});
    }
  }
  return hits;
}

Hits check_batch_norm(const TracedCall& call, const LintOptions& /*options*/) {
  const c10::IValue* training = argument(call, "training");
  training = training == nullptr ? argument(call, "train") : training;
  if (call.in_backward || training == nullptr || !training->isBool() || !training->toBool()) {
    return {};
  }
  for (const std::string_view name : {"running_mean", "running_var"}) {
    const at::Tensor statistic = tensor_argument(call, name);
    if (const auto format = format_16bit(statistic)) {
      return {{.format = format_name(statistic),
               .value = std::string(name),
               .consequence = concat("a running statistic in ", numerics::to_string(*format),
                                     " stands still once momentum times the difference is below ",
                                     "half a step, ", text(numerics::info(*format).epsilon / 4),
                                     " of its value or more"),
               .remedy = "keep running_mean and running_var in fp32; the input may be 16-bit"}};
    }
    if (holds_reals(statistic) && !all_finite(statistic)) {
      return {{.format = format_name(statistic),
               .value = std::string(name),
               .consequence = "the running statistic is not finite and stays so, also when the "
                              "step is skipped: seen at evaluation",
               .remedy = "find what makes the input infinite, and set the statistic back",
               .of_values = true}};
    }
  }
  return {};
}

Hits check_gradient_sum(const TracedCall& call, const LintOptions& options) {
  const at::Tensor sum = result(call);
  const auto format = format_16bit(sum);
  if (!format || base_name(call) != "add" ||
      call.node.find("AccumulateGrad") == std::string::npos) {
    return {};
  }
  std::string parameter;
  for (const tensor::Parameter& candidate : options.parameters) {
    if (candidate.value.grad().defined() && candidate.value.grad().is_same(sum)) {
      parameter = candidate.name;
    }
  }
  const std::string name(numerics::to_string(*format));
  return {{.format = name,
           .consequence = concat("the gradients of several backward passes add up in ", name,
                                 ": a sum of equal ones stops growing at ",
                                 2 / numerics::info(*format).epsilon, " of them"),
           .remedy = "add them up in fp32 (optim::Optimizer::accumulate_ after each backward), or "
                     "keep the parameter in fp32",
           .scope = parameter}};
}

Hits check_loss(const TracedCall& call, const LintOptions& /*options*/) {
  const at::Tensor loss = result(call);
  const auto format = format_16bit(loss);
  if (call.in_backward || !format || !is_readable(loss) || !contains(kLosses, base_name(call))) {
    return {};
  }
  const double value = largest_magnitude(loss);
  const std::string name(numerics::to_string(*format));
  return {{.format = name,
           .value = text(value),
           .consequence = concat("a loss of ", text(value), " has steps of ",
                                 text(numerics::ulp(*format, value)), " in ", name,
                                 ", and so do its parts where they add up"),
           .remedy = "losses=fp32 in the policy, or hand it fp32 logits",
           .of_values = true}};
}

}  // namespace mantissa::monitor
