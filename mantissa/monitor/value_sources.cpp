#include "mantissa/monitor/value_sources.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <ATen/core/function_schema.h>

#include "mantissa/monitor/call_values.h"

namespace mantissa::monitor {
namespace {

bool returns_a_view(const c10::FunctionSchema& schema) {
  const auto& returns = schema.returns();
  return !returns.empty() && is_view(returns[0]);
}

// Of the numbers of one argument; that argument.
at::Tensor passed_on(const TracedCall& call) {
  constexpr std::array<std::string_view, 6> kCopies = {"_to_copy", "to",         "clone",
                                                       "copy",     "contiguous", "lift_fresh"};
  if (!call.operation) {
    return {};
  }
  const std::string name = base_name(call);
  if (name == "copy") {
    return tensor_argument(call, "src");
  }
  const bool copies = std::find(kCopies.begin(), kCopies.end(), name) != kCopies.end();
  if (!copies && !returns_a_view(call.operation->schema())) {
    return {};
  }
  const auto tensors = tensors_in(call.inputs);
  return tensors.empty() ? at::Tensor() : tensors[0];
}

}  // namespace

ValueSources::ValueSources(const tensor::ParameterList& parameters) {
  for (const tensor::Parameter& parameter : parameters) {
    ValueSource source;
    source.parameter = parameter.name;
    set(parameter.value, source);
  }
}

void ValueSources::visit(const TracedCall& call) {
  ++num_calls_;
  const at::Tensor argument = passed_on(call);
  const ValueSource* known = argument.defined() ? find(argument) : nullptr;
  const ValueSource source =
      known != nullptr ? *known
                       : ValueSource{call.name, call.scope, call.in_backward, "", num_calls_};
  for (const at::Tensor& made : tensors_in(call.outputs)) {
    if (!made.defined() || made.is_same(argument)) {
      continue;
    }
    if (argument.defined() && known == nullptr) {
      entries_.erase(made.unsafeGetTensorImpl());  // given, as its argument was
    } else {
      set(made, source);
    }
  }
}

const ValueSource* ValueSources::find(const at::Tensor& tensor) const {
  const auto found = entries_.find(tensor.unsafeGetTensorImpl());
  return found == entries_.end() ? nullptr : &found->second.source;
}

void ValueSources::set(const at::Tensor& tensor, const ValueSource& source) {
  entries_.insert_or_assign(tensor.unsafeGetTensorImpl(),
                            Entry{WeakTensor(tensor.getIntrusivePtr()), source});
}

}  // namespace mantissa::monitor
