#include "mantissa/monitor/call_values.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>

#include <ATen/core/stack.h>

#include "mantissa/tensor/dtype.h"

namespace mantissa::monitor {

std::string base_name(const TracedCall& call) {
  std::string name = call.name;
  name.erase(0, name.starts_with("aten::") ? 6 : 0);
  if (name.size() > 1 && name.ends_with('_') && !name.ends_with("__")) {
    name.pop_back();
  }
  return name;
}

const c10::IValue* argument(const TracedCall& call, std::string_view name) {
  if (!call.operation) {
    return nullptr;
  }
  const auto& arguments = call.operation->schema().arguments();
  const auto found =
      std::find_if(arguments.begin(), arguments.end(),
                   [&](const c10::Argument& candidate) { return candidate.name() == name; });
  return found == arguments.end() ? nullptr : &call.inputs[found - arguments.begin()];
}

at::Tensor tensor_argument(const TracedCall& call, std::string_view name) {
  const c10::IValue* value = argument(call, name);
  return value != nullptr && value->isTensor() ? value->toTensor() : at::Tensor();
}

const TracedCall& outermost(const TracedCall& call) {
  const TracedCall* result = &call;
  while (result->outer != nullptr && result->operation.has_value()) {
    result = result->outer;
  }
  return *result;
}

std::string blamed_name(const TracedCall& call) {
  const TracedCall& outer = outermost(call);
  const bool completes_node = !outer.after_node.empty() && outer.operation.has_value() &&
                              (is_cast(outer) || base_name(outer) == "sum");
  return completes_node ? outer.after_node : outer.name;
}

bool is_cast(const TracedCall& call) {
  const std::string name = base_name(call);
  return name == "copy" || name == "_to_copy" || name == "to";
}

bool is_view(const c10::Argument& result) {
  return result.alias_info() != nullptr && !result.alias_info()->isWrite();
}

std::string node_name(const std::string& event) {
  constexpr std::string_view kNode = "CppNode<";
  const size_t node = event.find(kNode);
  if (node == std::string::npos) {
    return event;
  }
  // Without the arguments of a template, and then without namespaces.
  std::string type = event.substr(node + kNode.size());
  type = type.substr(0, type.find_first_of("<>"));
  const size_t colon = type.rfind("::");
  return (colon == std::string::npos ? type : type.substr(colon + 2)) + "Backward";
}

bool is_view_node(std::string_view name) {
  constexpr std::array<std::string_view, 15> kNames = {
      "View",    "UnsafeView", "ReshapeAlias", "T",         "Transpose",
      "Permute", "Expand",     "Squeeze",      "Unsqueeze", "Slice",
      "Select",  "Split",      "Unbind",       "Alias",     "AsStrided"};
  const size_t end = name.find("Backward");
  return end != std::string_view::npos &&
         std::find(kNames.begin(), kNames.end(), name.substr(0, end)) != kNames.end();
}

at::Tensor result(const TracedCall& call) {
  return !call.outputs.empty() && call.outputs[0].isTensor() ? call.outputs[0].toTensor()
                                                             : at::Tensor();
}

std::optional<numerics::Format> format_16bit(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor::is_16bit(tensor.scalar_type())) {
    return std::nullopt;
  }
  return tensor::format_of(tensor.scalar_type());
}

bool is_readable(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided && !tensor.is_meta() &&
         tensor.numel() > 0;
}

bool holds_reals(const at::Tensor& tensor) {
  return is_readable(tensor) && tensor::is_training_dtype(tensor.scalar_type());
}

std::vector<at::Tensor> tensors_in(const std::vector<c10::IValue>& values) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& value : values) {
    if (value.isTensor()) {
      tensors.push_back(value.toTensor());
    } else if (value.isList()) {
      for (const c10::IValue& element : value.toListRef()) {
        if (element.isTensor()) {
          tensors.push_back(element.toTensor());
        }
      }
    }
  }
  return tensors;
}

bool has_any(const at::Tensor& mask) { return mask.any().item<bool>(); }

int64_t num_true(const at::Tensor& mask) { return mask.sum().item<int64_t>(); }

bool all_finite(const at::Tensor& tensor) { return tensor.isfinite().all().item<bool>(); }

bool all_finite(const std::vector<at::Tensor>& tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) {
    return !holds_reals(tensor) || all_finite(tensor);
  });
}

at::Tensor nonfinite_values(const at::Tensor& tensor) {
  return tensor.masked_select(tensor.isfinite().logical_not());
}

double largest_magnitude(const at::Tensor& tensor) {
  return tensor.to(at::kDouble).abs().max().item<double>();
}

at::Tensor result_in_fp32(const TracedCall& call) {
  torch::jit::Stack stack;
  for (const c10::IValue& input : call.inputs) {
    const bool widens = input.isTensor() && format_16bit(input.toTensor()).has_value();
    stack.push_back(widens ? c10::IValue(input.toTensor().to(at::kFloat)) : input);
  }
  call.operation->callBoxed(&stack);
  const size_t count = call.operation->schema().returns().size();
  return stack[stack.size() - count].toTensor();
}

std::string text(double value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

std::string format_name(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return "fp32";
    case at::kDouble:
      return "fp64";
    default:
      break;
  }
  const auto format = format_16bit(tensor);
  return format ? std::string(numerics::to_string(*format))
                : std::string(c10::toString(tensor.scalar_type()));
}

}  // namespace mantissa::monitor
