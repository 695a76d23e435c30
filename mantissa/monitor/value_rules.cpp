#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include <ATen/TensorOperators.h>
#include <ATen/ops/_unique2.h>
#include <ATen/ops/cumsum.h>

#include "mantissa/base/error.h"
#include "mantissa/monitor/call_values.h"
#include "mantissa/monitor/lint_rules.h"

namespace mantissa::monitor {
namespace {

using numerics::Format;

bool contains(const auto& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The largest n so that all integers up to n are numbers of the format.
double exact_integers(Format format) { return 2 / numerics::info(format).epsilon; }

int64_t num_distinct(const at::Tensor& values) {
  return std::get<0>(at::_unique2(values.to(at::kDouble).flatten())).numel();
}

bool are_integers(const at::Tensor& values_double) {
  return (values_double == values_double.round()).all().item<bool>();
}

Hit position_hit(Format format, double largest, int64_t before, int64_t after) {
  const std::string name(numerics::to_string(format));
  return {.format = name,
          .value = text(largest),
          .consequence = concat("integers are exact up to ", exact_integers(format), " in ", name,
                                ": ", before, " different ones become ", after),
          .remedy =
              "compute positions and what is made of them in fp32, and cast that (a scope of "
              "the policy, or a cast of your own)",
          .of_values = true};
}

// `exact` are the integers, `kept` what a 16-bit format makes of them.
Hits merged_integers(Format format, const at::Tensor& exact, const at::Tensor& kept) {
  const double largest = largest_magnitude(exact);
  if (largest <= exact_integers(format)) {
    return {};
  }
  const int64_t before = num_distinct(exact);
  const int64_t after = num_distinct(kept);
  return after < before ? Hits{position_hit(format, largest, before, after)} : Hits();
}

Hits check_range(const TracedCall& call, Format format) {
  const at::Tensor values = result(call).to(at::kDouble).flatten();
  const int64_t distinct = num_distinct(values);
  if (distinct < values.numel()) {
    return {position_hit(format, largest_magnitude(values), values.numel(), distinct)};
  }
  return {};
}

Hits check_cumsum(const TracedCall& call, Format format) {
  const at::Tensor x = tensor_argument(call, "self");
  const c10::IValue* dim = argument(call, "dim");
  if (!is_readable(x) || dim == nullptr || !dim->isInt()) {
    return {};
  }
  const at::Tensor exact = at::cumsum(x.to(at::kDouble), dim->toInt());
  return all_finite(exact) && are_integers(exact) ? merged_integers(format, exact, result(call))
                                                  : Hits();
}

Hits check_cast_of_integers(const at::Tensor& from, const at::Tensor& to, Format format) {
  if (!is_readable(from) || from.dim() == 0 || format_16bit(from)) {
    return {};
  }
  if (!c10::isIntegralType(from.scalar_type(), false)) {
    if (!holds_reals(from) || !all_finite(from) || !are_integers(from.to(at::kDouble))) {
      return {};
    }
  }
  return merged_integers(format, from, to);
}

// Operations that cast an integer tensor to the format of the other operand, unseen.
constexpr std::array<std::string_view, 11> kMixing = {
    "add", "sub", "rsub", "mul", "div", "pow", "maximum", "minimum", "remainder", "fmod", "where"};

Hits check_mixed_integers(const TracedCall& call, Format format) {
  for (const at::Tensor& input : tensors_in(call.inputs)) {
    if (is_readable(input) && input.dim() > 0 &&
        c10::isIntegralType(input.scalar_type(), /*includeBool=*/false)) {
      Hits hits = merged_integers(format, input, input.to(result(call).scalar_type()));
      if (!hits.empty()) {
        return hits;
      }
    }
  }
  return {};
}

Hits check_node(const TracedCall& call) {
  const std::vector<at::Tensor> outputs = tensors_in(call.outputs);
  const auto bad = std::find_if(outputs.begin(), outputs.end(), [](const at::Tensor& tensor) {
    return holds_reals(tensor) && !all_finite(tensor);
  });
  if (bad == outputs.end() || !all_finite(tensors_in(call.inputs)) || !all_finite(call.saved)) {
    return {};
  }
  const bool is_16bit = format_16bit(*bad).has_value();
  const at::Tensor values = nonfinite_values(*bad);
  return {{.format = format_name(*bad),
           .value = text(values[0].item<double>()),
           .consequence = concat(values.numel(), " of ", bad->numel(),
                                 " gradients are not finite, although those that came are"),
           .remedy = is_16bit ? "lower the loss scale, as a dynamic one does, or run the forward "
                                "operation in fp32 or bf16"
                              : "keep the argument away from where the derivative is infinite",
           .of_values = true}};
}

// Half of them and more: single small numbers are the normal case.
bool is_most(int64_t part, int64_t all) { return part > 0 && 2 * part >= all; }

Hits check_cast_underflow(const TracedCall& call, const at::Tensor& from, const at::Tensor& to,
                          Format format) {
  if (!holds_reals(from) || from.dim() == 0 || format_16bit(from)) {
    return {};
  }
  const at::Tensor lost = (from != 0).logical_and(to == 0);
  const int64_t num_lost = num_true(lost);
  const int64_t num_nonzero = num_true(from != 0);
  if (!is_most(num_lost, num_nonzero)) {
    return {};
  }
  const std::string name(numerics::to_string(format));
  return {{.format = name,
           .value = text(largest_magnitude(from.masked_select(lost))),
           .consequence =
               concat(num_lost, " of ", num_nonzero, " numbers become 0 in ", name,
                      ", whose smallest is ", text(numerics::info(format).smallest_subnormal)),
           .remedy = call.in_backward ? "a larger loss scale, or bf16"
                                      : "scale the tensor first, or keep it in fp32",
           .of_values = true}};
}

Hits check_small_gradients(const TracedCall& call) {
  for (const at::Tensor& gradient : tensors_in(call.inputs)) {
    if (!is_readable(gradient) || gradient.scalar_type() != at::kHalf) {
      continue;
    }
    const double smallest_normal = numerics::info(Format::fp16).smallest_normal;
    const at::Tensor magnitude = gradient.to(at::kFloat).abs();
    const int64_t num_nonzero = num_true(magnitude > 0);
    const int64_t num_small = num_true((magnitude > 0).logical_and(magnitude < smallest_normal));
    if (is_most(num_small, num_nonzero)) {
      return {{.format = "fp16",
               .value = text(largest_magnitude(gradient)),
               .consequence = concat(num_small, " of ", num_nonzero,
                                     " gradients are below the smallest normal number ",
                                     text(smallest_normal), ", where bits and then numbers vanish"),
               .remedy = "a loss scale (scale.kind=dynamic), or bf16",
               .of_values = true}};
    }
  }
  return {};
}

// `from` and `to` of an operation that casts; undefined for others.
std::pair<at::Tensor, at::Tensor> cast_of(const TracedCall& call) {
  const std::string name = base_name(call);
  if (name == "_to_copy") {
    return {tensor_argument(call, "self"), result(call)};
  }
  if (name == "copy") {
    const at::Tensor from = tensor_argument(call, "src");
    const at::Tensor to = result(call);
    if (from.defined() && to.defined() && from.sizes() == to.sizes()) {
      return {from, to};
    }
  }
  return {};
}

bool has_hit(const TracedCall& call, const LintOptions& options) {
  const Hits hits = check_constant(call, options);
  return std::any_of(hits.begin(), hits.end(),
                     [](const Hit& hit) { return hit.severity == Severity::hazard; });
}

}  // namespace

Hits check_position(const TracedCall& call, const LintOptions& /*options*/) {
  const auto format = format_16bit(result(call));
  if (call.in_backward || !format || !is_readable(result(call))) {
    return {};
  }
  const std::string name = base_name(call);
  if (name == "arange" || name == "linspace" || name == "range") {
    return check_range(call, *format);
  }
  if (name == "cumsum") {
    return check_cumsum(call, *format);
  }
  if (contains(kMixing, name)) {
    return check_mixed_integers(call, *format);
  }
  const auto [from, to] = cast_of(call);
  return check_cast_of_integers(from, to, *format);
}

Hits check_overflow(const TracedCall& call, const LintOptions& options) {
  if (!call.operation) {
    return check_node(call);
  }
  const at::Tensor y = result(call);
  const std::string name = base_name(call);
  const auto format = format_16bit(y);
  if (!call.node.empty() || !format || !is_readable(y) || has_domain(name) ||
      name.find("empty") != std::string::npos || all_finite(y)) {
    return {};
  }
  const std::vector<at::Tensor> inputs = tensors_in(call.inputs);
  const bool has_reals = std::any_of(inputs.begin(), inputs.end(), holds_reals);
  const bool has_infinite_scalar =
      std::any_of(call.inputs.begin(), call.inputs.end(), [](const c10::IValue& input) {
        return input.isDouble() && !std::isfinite(input.toDouble());
      });
  if (!has_reals || has_infinite_scalar || !all_finite(inputs) || has_hit(call, options)) {
    return {};
  }
  const std::string format_text(numerics::to_string(*format));
  const at::Tensor values = nonfinite_values(y);
  return {{.format = format_text,
           .value = text(values[0].item<double>()),
           .consequence = concat(values.numel(), " of ", y.numel(), " results are beyond ",
                                 text(numerics::info(*format).max), ", the largest number of ",
                                 format_text, ", though every input is finite"),
           .remedy = "run it in fp32 (a rule or a scope of the policy) or in bf16; in the forward "
                     "pass no loss scale helps",
           .of_values = true}};
}

Hits check_underflow(const TracedCall& call, const LintOptions& /*options*/) {
  if (!call.operation) {
    return check_small_gradients(call);
  }
  const auto [from, to] = cast_of(call);
  const auto format = format_16bit(to);
  return format && is_readable(to) ? check_cast_underflow(call, from, to, *format) : Hits();
}

Hits check_repeated_index(const TracedCall& call, const LintOptions& /*options*/) {
  constexpr std::array<std::string_view, 6> kSums = {"embedding_dense_backward",
                                                     "index_put",
                                                     "_index_put_impl",
                                                     "index_add",
                                                     "scatter_add",
                                                     "scatter_reduce"};
  const at::Tensor sum = result(call);
  const auto format = format_16bit(sum);
  const c10::IValue* accumulate = argument(call, "accumulate");
  if (!format || !is_readable(sum) || !contains(kSums, base_name(call)) ||
      (accumulate != nullptr && !accumulate->toBool())) {
    return {};
  }
  const at::Tensor reference = result_in_fp32(call).to(at::kDouble);
  const double norm = reference.norm().item<double>();
  const double error = (sum.to(at::kDouble) - reference).norm().item<double>() / norm;
  // Rounded once it is at most half of epsilon.
  if (!(norm > 0) || !(error > 4 * numerics::info(*format).epsilon)) {
    return {};
  }
  const std::string name(numerics::to_string(*format));
  return {{.format = name,
           .value = concat("error ", text(error * 100), " %"),
           .consequence = concat("terms with the same index add up in ", name,
                                 ", where a sum of equal ones stops growing at ",
                                 exact_integers(*format), " of them"),
           .remedy = "keep what is summed in fp32: an embedding with its gradient (embedding=fp32, "
                     "or an fp32 table), or cast before and after",
           .of_values = true}};
}

Hits check_lost_update(const TracedCall& call, const LintOptions& /*options*/) {
  constexpr std::array<std::string_view, 6> kUpdates = {
      "aten::add_", "aten::sub_", "aten::mul_", "aten::addcmul_", "aten::addcdiv_", "aten::lerp_"};
  const at::Tensor after = result(call);
  const auto format = format_16bit(after);
  if (call.in_backward || !format || !is_readable(after) || !contains(kUpdates, call.name)) {
    return {};
  }
  const bool is_parameter = after.is_leaf() && after.requires_grad();
  const at::Tensor before = tensor_argument(call, "self");
  if ((!is_parameter && call.name != "aten::lerp_") || !is_readable(before)) {
    return {};
  }
  const at::Tensor wanted = result_in_fp32(call) != before.to(at::kFloat);
  const int64_t num_wanted = num_true(wanted);
  const int64_t num_lost = num_true(wanted.logical_and(after == before));
  if (!is_most(num_lost, num_wanted)) {
    return {};
  }
  const std::string name(numerics::to_string(*format));
  return {{.format = name,
           .value = concat(num_lost, " of ", num_wanted),
           .consequence = concat(num_lost, " of ", num_wanted, " numbers that fp32 would change ",
                                 "stay what they are: the update is below half a step of ", name),
           .remedy = is_parameter ? "fp32 masters, or stochastic rounding (optim::Masters)"
                                  : "keep the average in fp32",
           .of_values = true}};
}

}  // namespace mantissa::monitor
