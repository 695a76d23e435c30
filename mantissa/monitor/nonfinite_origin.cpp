#include "mantissa/monitor/nonfinite_origin.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/enum_tag.h>
#include <ATen/core/function_schema.h>

#include "mantissa/base/error.h"
#include "mantissa/base/nonfinite.h"
#include "mantissa/monitor/call_values.h"
#include "mantissa/monitor/value_sources.h"

namespace mantissa::monitor {
namespace {

// The first value that is not finite.
std::optional<double> nonfinite_value(const at::Tensor& tensor) {
  if (!holds_reals(tensor) || all_finite(tensor)) {
    return std::nullopt;
  }
  return nonfinite_values(tensor)[0].item<double>();
}

std::optional<double> nonfinite_value(const c10::IValue& value) {
  if (value.isDouble() && !std::isfinite(value.toDouble())) {
    return value.toDouble();
  }
  for (const at::Tensor& tensor : tensors_in({value})) {
    if (const auto found = nonfinite_value(tensor)) {
      return found;
    }
  }
  return std::nullopt;
}

// Whether memory of any content is what the call is given, to write to, or returns.
bool is_destination(const TracedCall& call, size_t argument) {
  const std::string name = base_name(call);
  return call.operation->schema().arguments()[argument].is_out() ||
         (argument == 0 && (name == "copy" || name == "fill" || name == "zero"));
}

bool leaves_memory_unset(const TracedCall& call) {
  const std::string name = base_name(call);
  return name.find("empty") != std::string::npos || name.find("resize") != std::string::npos ||
         name == "set";
}

bool is_given_nonfinite(const TracedCall& call) {
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (!is_destination(call, i) && nonfinite_value(call.inputs[i])) {
      return true;
    }
  }
  return false;
}

bool holds_nan(const c10::IValue& value) {
  if (value.isDouble()) {
    return std::isnan(value.toDouble());
  }
  const std::vector<at::Tensor> tensors = tensors_in({value});
  return std::any_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) {
    return holds_reals(tensor) && has_any(tensor.isnan());
  });
}

// Such as the -1e9 of x * -1e9: kernels compute with the wider number that it comes from.
bool is_cast_of_constant(const TracedCall& call) {
  const auto tensors = tensors_in(call.outputs);
  return !call.in_backward && is_cast(call) && !is_cast(outermost(call)) && tensors.size() == 1 &&
         tensors[0].dim() == 0;
}

// The last thing that a kernel does which computes in FP32: the operation is to blame, not a cast
// of what it was given.
bool rounds_a_result(const TracedCall& call) {
  if (!is_cast(call)) {
    return false;
  }
  const TracedCall* kernel = call.outer;
  while (kernel != nullptr && kernel->operation && is_cast(*kernel)) {
    kernel = kernel->outer;
  }
  if (kernel == nullptr || !kernel->operation) {
    return false;
  }
  const at::Tensor from = tensor_argument(call, base_name(call) == "copy" ? "src" : "self");
  const std::vector<at::Tensor> given = tensors_in(kernel->inputs);
  return from.defined() && from.has_storage() &&
         std::none_of(given.begin(), given.end(), [&](const at::Tensor& tensor) {
           return tensor.defined() && tensor.has_storage() && tensor.is_alias_of(from);
         });
}

// NaN of infinities, as inf - inf is.
bool makes_nan(const TracedCall& call) {
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    // Batch norm has written its statistics by now, which no schema says.
    const bool is_statistic =
        call.operation->schema().arguments()[i].name().starts_with("running_");
    if (!is_destination(call, i) && !is_statistic && holds_nan(call.inputs[i])) {
      return false;
    }
  }
  return std::any_of(call.outputs.begin(), call.outputs.end(), holds_nan);
}

// The first of those that the call returns, or a node hands on.
std::optional<double> nonfinite_output(const TracedCall& call) {
  for (const c10::IValue& output : call.outputs) {
    if (const auto value = nonfinite_value(output)) {
      return value;
    }
  }
  return std::nullopt;
}

at::Tensor nonfinite_tensor(const TracedCall& call) {
  for (const at::Tensor& tensor : tensors_in(call.outputs)) {
    if (nonfinite_value(tensor)) {
      return tensor;
    }
  }
  return {};
}

// Each result of one number of each input.
bool is_pointwise(const TracedCall& call) {
  const std::string name = base_name(call);
  return name == "copy" || name == "_to_copy" || call.operation->hasTag(at::Tag::pointwise);
}

bool is_divisor(const TracedCall& call, const std::string& argument) {
  const std::string name = base_name(call);
  return (argument == "other" && name.starts_with("div")) ||
         (argument == "tensor2" && name == "addcdiv");
}

// Not the factor of an argument.
bool takes_a_number(const c10::Argument& argument) {
  return argument.type()->kind() == c10::TypeKind::NumberType && argument.name() != "alpha";
}

// The number of the input that decides, given where results are not finite.
void set_value(OriginInput& input, const at::Tensor& tensor, const at::Tensor& bad,
               bool is_pointwise) {
  if (is_pointwise && at::is_expandable_to(tensor.sizes(), bad.sizes())) {
    input.value = tensor.expand_as(bad).masked_select(bad)[0].item<double>();
    input.is_at_place = true;
    return;
  }
  const at::Tensor values = tensor.flatten();
  input.value = values[values.abs().argmax()].item<double>();
}

void set_source(OriginInput& input, const ValueSource* source) {
  if (source == nullptr) {
    input.is_given = true;
    return;
  }
  input.operation = source->operation;
  input.scope = source->scope;
  input.in_backward = source->in_backward;
  input.parameter = source->parameter;
}

std::vector<OriginInput> inputs_of(const TracedCall& call, const at::Tensor& output,
                                   const ValueSources* sources) {
  if (!output.defined()) {
    return {};
  }
  const at::Tensor bad = output.isfinite().logical_not();
  const bool pointwise = is_pointwise(call);
  const auto& arguments = call.operation->schema().arguments();
  std::vector<OriginInput> inputs;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    OriginInput input{arguments[i].name(), ""};
    const c10::IValue& given = call.inputs[i];
    if (is_destination(call, i)) {
      continue;
    }
    const bool is_number = given.isTensor() && given.toTensor().defined() &&
                           given.toTensor().unsafeGetTensorImpl()->is_wrapped_number();
    if (given.isTensor() && holds_reals(given.toTensor()) && !is_number) {
      const bool is_written =
          arguments[i].alias_info() != nullptr && arguments[i].alias_info()->isWrite();
      input.format = format_name(given.toTensor());
      set_value(input, given.toTensor(), bad, pointwise);
      if (sources != nullptr) {
        set_source(input, sources->find(is_written ? output : given.toTensor()));
      }
      inputs.push_back(input);
    } else if (pointwise && (is_number || takes_a_number(arguments[i]))) {
      input.value = is_number ? given.toTensor().item<double>() : given.toScalar().toDouble();
      input.is_at_place = true;
      inputs.push_back(input);
    }
  }
  std::stable_sort(inputs.begin(), inputs.end(), [&](const OriginInput& a, const OriginInput& b) {
    const auto weight = [&](const OriginInput& input) {
      return is_divisor(call, input.name) ? 1 / std::abs(input.value) : std::abs(input.value);
    };
    return weight(a) > weight(b);
  });
  return inputs;
}

}  // namespace

void NonfiniteSearch::visit(const TracedCall& call) {
  if (!origin_.operation.empty()) {
    if (!end_.is_settled()) {
      end_.visit(call);
    }
    return;
  }
  const bool may_begin = suspect_within_ == nullptr && call.operation.has_value();
  if (!may_begin && suspect_within_ != &call) {
    return;  // nothing hangs on its values
  }
  const auto value = leaves_memory_unset(call) ? std::nullopt : nonfinite_output(call);
  if (may_begin && value && !is_cast_of_constant(call) && !rounds_a_result(call) &&
      (!is_given_nonfinite(call) || makes_nan(call))) {
    const std::string blamed = blamed_name(call);
    const at::Tensor made = nonfinite_tensor(call);
    suspect_ = {call.name,
                blamed == call.name ? "" : blamed,
                call.scope,
                call.in_backward,
                *value,
                made.defined() ? format_name(made) : "",
                inputs_of(call, made, sources_)};
    suspect_within_ = &outermost(call);
  }
  // What an operation makes and masks itself is none: the derivative of a norm divides by 0.
  if (suspect_within_ == &call) {
    origin_ = value ? suspect_ : NonfiniteOrigin();
    suspect_within_ = nullptr;
  }
}

namespace {

bool returns_view(const TracedCall& call) {
  const auto& returns = call.operation->schema().returns();
  return !returns.empty() && returns[0].alias_info() != nullptr &&
         !returns[0].alias_info()->isWrite();
}

// Looks for a value that the step was given, should none be made in it.
class GivenSearch {
 public:
  explicit GivenSearch(const ValueSources& sources) : sources_(sources) {}

  void visit(const TracedCall& call) {
    if (call.name.find("AccumulateGrad") != std::string::npos) {
      ends_finite_ &= all_finite(tensors_in(call.inputs));
    }
    if (call.outer != nullptr || !call.operation || call.outputs.empty() ||
        leaves_memory_unset(call) || returns_view(call)) {
      return;
    }
    const auto value = nonfinite_output(call);
    if (!call.in_backward && !call.name.ends_with("_like")) {  // backward() begins with ones_like
      last_is_finite_ = !value;
    }
    if (!value || !first_.operation.empty() || !is_given_from_outside(call)) {
      return;
    }
    const at::Tensor made = nonfinite_tensor(call);
    first_ = {call.name, "", call.scope, call.in_backward, *value};
    first_.format = made.defined() ? format_name(made) : "";
    first_.inputs = inputs_of(call, made, &sources_);
    first_.is_given = true;
  }

  // A step may mask what it is given.
  NonfiniteOrigin result() const {
    return ends_finite_ && last_is_finite_ ? NonfiniteOrigin() : first_;
  }

 private:
  bool is_given_from_outside(const TracedCall& call) const {
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      if (is_destination(call, i)) {
        continue;
      }
      if (call.inputs[i].isDouble() && std::isnan(call.inputs[i].toDouble())) {
        return true;
      }
      for (const at::Tensor& tensor : tensors_in({call.inputs[i]})) {
        if (nonfinite_value(tensor) && is_from_outside(tensor)) {
          return true;
        }
      }
    }
    return false;
  }

  bool is_from_outside(const at::Tensor& tensor) const {
    const ValueSource* source = sources_.find(tensor);
    return source == nullptr || !source->parameter.empty() ||
           source->operation.find("empty") != std::string::npos;
  }

  const ValueSources& sources_;
  NonfiniteOrigin first_;
  bool last_is_finite_ = true;  // result of the forward pass
  bool ends_finite_ = true;     // in every gradient
};

}  // namespace

NonfiniteOrigin find_nonfinite_origin(const std::function<void()>& step,
                                      const tensor::ParameterList& parameters) {
  ValueSources sources(parameters);
  NonfiniteSearch search(&sources);
  GivenSearch given(sources);
  trace_calls(step, [&](const TracedCall& call) {
    search.visit(call);
    if (search.origin().operation.empty()) {  // none so far, or none that was not replaced
      given.visit(call);
      sources.visit(call);
    }
  });
  return search.origin().operation.empty() ? given.result() : search.origin();
}

namespace {

std::string place(const std::string& scope, bool in_backward) {
  return concat(in_backward ? " (backward of " : " (", scope.empty() ? "the top level" : scope,
                ")");
}

std::string describe(const OriginInput& input) {
  const std::string value =
      concat(", whose ", input.name, input.is_at_place ? " is " : " reaches ", text(input.value));
  if (!input.parameter.empty()) {
    return concat(value, ", parameter ", input.parameter);
  }
  if (input.operation.empty()) {
    return input.is_given ? value + ", given to the step" : value;
  }
  return concat(value, ", from ", input.operation, place(input.scope, input.in_backward));
}

}  // namespace

std::string describe(const NonfiniteOrigin& origin) {
  if (origin.operation.empty()) {
    return "a value that is not finite";
  }
  return concat(nonfinite_name(origin.value).value(), origin.is_given ? " given to " : " from ",
                origin.operation, origin.within.empty() ? "" : " within ", origin.within,
                origin.format.empty() ? "" : " in ", origin.format,
                place(origin.scope, origin.in_backward),
                origin.inputs.empty() ? "" : describe(origin.inputs[0]));
}

}  // namespace mantissa::monitor
