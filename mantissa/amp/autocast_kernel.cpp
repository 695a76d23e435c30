#include "mantissa/amp/autocast_kernel.h"

#include <algorithm>

#include <c10/core/impl/LocalDispatchKeySet.h>

#include "mantissa/amp/argument_cast.h"
#include "mantissa/amp/emulation.h"
#include "mantissa/amp/parameter_formats.h"
#include "mantissa/base/error.h"
#include "mantissa/tensor/dtype.h"

namespace mantissa::amp {
namespace {

using Arguments = AutocastKernel::Arguments;
using c10::TypeKind;

// As in torch, an optional argument, such as a bias, follows the others.
bool decides(const c10::TypePtr& type) {
  return type->kind() == TypeKind::TensorType ||
         (type->kind() == TypeKind::ListType &&
          type->containedType(0)->kind() == TypeKind::TensorType);
}

// Batch normalization updates these in place without saying so in its schema; a cast copy would
// take the update.
bool is_running_statistic(const c10::Argument& argument) {
  return argument.name() == "running_mean" || argument.name() == "running_var";
}

template <typename Visit>
void for_each_tensor(const c10::IValue& argument, const Visit& visit) {
  if (argument.isTensor()) {
    visit(argument.toTensor());
  } else if (argument.isList()) {
    for (const c10::IValue& element : argument.toListRef()) {
      if (element.isTensor()) {
        visit(element.toTensor());
      }
    }
  }
}

// The format that is emulated in the place of casts to `dtype`.
std::optional<numerics::Format> emulated_for(at::ScalarType dtype) {
  return tensor::is_16bit(dtype) ? emulated_format() : std::nullopt;
}

c10::IValue rounded(const c10::IValue& value, numerics::Format format) {
  if (value.isTensor()) {
    return is_eligible(value.toTensor()) ? c10::IValue(round_to(value.toTensor(), format)) : value;
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> result;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      result.push_back(is_eligible(tensor) ? round_to(tensor, format) : tensor);
    }
    return result;
  }
  return value;
}

// Results of FP32 in the compute format.
void lower_results(const c10::OperatorHandle& operation, at::ScalarType compute,
                   torch::jit::Stack* stack) {
  const auto results = static_cast<int64_t>(operation.schema().returns().size());
  for (auto result = stack->end() - results; result != stack->end(); ++result) {
    if (result->isTensor() && result->toTensor().defined() &&
        result->toTensor().scalar_type() == at::kFloat) {
      const auto format = emulated_for(compute);
      *result = format ? rounded(*result, *format) : result->toTensor().to(compute);
    }
  }
}

// The elements are looked at in place, because copying a list costs more than a call.
bool list_needs_cast(at::ArrayRef<c10::IValue> elements, at::ScalarType dtype) {
  return std::any_of(elements.begin(), elements.end(), [&](const c10::IValue& element) {
    return element.isTensor() && needs_cast(element.toTensor(), dtype);
  });
}

c10::IValue cast_list(const c10::List<at::Tensor>& tensors, at::ScalarType dtype) {
  c10::List<at::Tensor> result;
  result.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    result.push_back(cast_argument(tensors.get(i), dtype));
  }
  return result;
}

c10::IValue cast_list(const c10::List<std::optional<at::Tensor>>& tensors, at::ScalarType dtype) {
  c10::List<std::optional<at::Tensor>> result;
  result.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::optional<at::Tensor> tensor = tensors.get(i);
    result.push_back(tensor ? std::make_optional(cast_argument(*tensor, dtype)) : std::nullopt);
  }
  return result;
}

[[noreturn]] void throw_banned(const c10::OperatorHandle& operation) {
  const std::string name = c10::toString(operation.operator_name());
  const bool has_stable_form = name == "aten::binary_cross_entropy";
  throw InvalidArgument(concat(
      "autocast: operation ", name, " is banned by policy \"",
      to_string(active_compiled_policy()->policy), "\"; ",
      has_stable_form ? "use binary_cross_entropy_with_logits, which is safe in 16 bits, " : "",
      has_stable_form ? "or give it the rule fp32" : "give it another rule, such as fp32"));
}

}  // namespace

AutocastKernel::AutocastKernel(const c10::OperatorHandle& operation, size_t number,
                               const OperationIndex& operations)
    : number_(number), num_arguments_(operation.schema().arguments().size()) {
  const auto& arguments = operation.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto& type = arguments[i].type();
    if (holds_tensors(type) && !is_running_statistic(arguments[i])) {
      cast_positions_.push_back(i);
      if (decides(type)) {
        deciding_positions_.push_back(i);
      }
    }
  }
  if (const auto overload = operations.with_dtype(operation)) {
    if (overload->operator_name() == operation.operator_name()) {
      dtype_position_ = *operation.schema().argumentIndexWithName("dtype");
    } else {
      with_dtype_ = overload;
    }
  }
}

void AutocastKernel::operator()(const c10::OperatorHandle& operation, c10::DispatchKeySet keys,
                                torch::jit::Stack* stack) const {
  const CompiledPolicy* policy = active_compiled_policy();
  const Rule rule = policy == nullptr ? Rule::keep : rule_of(*policy, number_);
  if (rule == Rule::keep) {
    operation.redispatchBoxed(keys & kBelowAutocast, stack);
    return;
  }
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(kAutocastKey);
  const Arguments arguments(stack->end() - static_cast<int64_t>(num_arguments_), stack->end());
  at::ScalarType dtype{};
  switch (rule) {
    case Rule::lower:
      dtype = lower_dtype(arguments, compute_dtype(*policy));
      if (const auto format = emulated_for(dtype)) {
        call_emulated(operation, dtype, *format, stack);
        return;
      }
      break;
    case Rule::fp32:
      dtype = at::kFloat;
      break;
    case Rule::widest:
      dtype = widest_dtype(operation, arguments, *policy);
      break;
    case Rule::to_self:
      if (!is_eligible(arguments[0].toTensor())) {
        operation.redispatchBoxed(keys & kBelowAutocast, stack);
        return;
      }
      dtype = arguments[0].toTensor().scalar_type();
      break;
    case Rule::fp32_output:
      call_with_fp32_output(operation, stack);
      return;
    case Rule::lower_output:
      call_with_lower_output(operation, compute_dtype(*policy), stack);
      return;
    case Rule::banned:
      throw_banned(operation);
    case Rule::keep:
      MANTISSA_ASSERT(false);
  }
  if (!cast_arguments(arguments, dtype)) {
    operation.redispatchBoxed(keys & kBelowAutocast, stack);  // the keys are those of the call
    return;
  }
  operation.callBoxed(stack);
}

bool AutocastKernel::cast_arguments(Arguments arguments, at::ScalarType dtype) const {
  bool has_cast = false;
  for (const size_t position : cast_positions_) {
    c10::IValue& argument = arguments[position];
    if (argument.isTensor()) {
      if (needs_cast(argument.toTensor(), dtype)) {
        argument = cast_argument(argument.toTensor(), dtype);
        has_cast = true;
      }
    } else if (argument.isList() && list_needs_cast(argument.toListRef(), dtype)) {
      has_cast = true;
      argument = argument.isTensorList() ? cast_list(argument.toTensorList(), dtype)
                                         : cast_list(argument.toOptionalTensorList(), dtype);
    }
  }
  return has_cast;
}

// With inputs and results rounded in the place of casts to `dtype`.
void AutocastKernel::call_emulated(const c10::OperatorHandle& operation, at::ScalarType dtype,
                                   numerics::Format format, torch::jit::Stack* stack) const {
  const Arguments arguments(stack->end() - static_cast<int64_t>(num_arguments_), stack->end());
  for (const size_t position : cast_positions_) {
    arguments[position] = rounded(arguments[position], format);
  }
  operation.callBoxed(stack);
  lower_results(operation, dtype, stack);
}

// That of the rule, or the wider one of a parameter which has a format of its own.
at::ScalarType AutocastKernel::lower_dtype(Arguments arguments, at::ScalarType compute) const {
  const ParameterFormats* formats = active_parameter_formats();
  if (formats == nullptr) {
    return compute;
  }
  at::ScalarType dtype = compute;
  for (const size_t position : cast_positions_) {
    for_each_tensor(arguments[position], [&](const at::Tensor& tensor) {
      if (const auto own = formats->own_dtype(tensor)) {
        dtype = wider(dtype, *own);
      }
    });
  }
  return dtype;
}

at::ScalarType AutocastKernel::widest_dtype(const c10::OperatorHandle& operation,
                                            Arguments arguments,
                                            const CompiledPolicy& policy) const {
  WidestDtype widest(operation, policy);
  for (const size_t position : deciding_positions_) {
    for_each_tensor(arguments[position], [&](const at::Tensor& tensor) { widest.add(tensor); });
  }
  return widest.value();
}

void AutocastKernel::call_with_lower_output(const c10::OperatorHandle& operation,
                                            at::ScalarType compute,
                                            torch::jit::Stack* stack) const {
  const Arguments arguments(stack->end() - static_cast<int64_t>(num_arguments_), stack->end());
  const bool is_open = dtype_position_ && arguments[*dtype_position_].isNone();
  if (!dtype_position_ || (is_open && emulated_for(compute))) {
    operation.callBoxed(stack);
    lower_results(operation, compute, stack);
    return;
  }
  if (is_eligible(arguments[0].toTensor()) && is_open) {
    arguments[*dtype_position_] = static_cast<int64_t>(compute);
  }
  operation.callBoxed(stack);
}

void AutocastKernel::call_with_fp32_output(const c10::OperatorHandle& operation,
                                           torch::jit::Stack* stack) const {
  const Arguments arguments(stack->end() - static_cast<int64_t>(num_arguments_), stack->end());
  const at::Tensor& first = arguments[0].toTensor();
  if (with_dtype_) {
    const at::ScalarType dtype = is_eligible(first) ? at::kFloat : first.scalar_type();
    stack->emplace_back(static_cast<int64_t>(dtype));
    with_dtype_->callBoxed(stack);
    return;
  }
  MANTISSA_ASSERT(dtype_position_.has_value());
  if (is_eligible(first) && arguments[*dtype_position_].isNone()) {
    arguments[*dtype_position_] = static_cast<int64_t>(at::kFloat);
  }
  operation.callBoxed(stack);
}

}  // namespace mantissa::amp
