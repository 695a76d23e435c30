#include "mantissa/monitor/nonfinite_origin.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>

#include "mantissa/monitor/call_values.h"

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

// The first of those that the call returns, or a node hands on.
std::optional<double> nonfinite_output(const TracedCall& call) {
  for (const c10::IValue& output : call.outputs) {
    if (const auto value = nonfinite_value(output)) {
      return value;
    }
  }
  return std::nullopt;
}

}  // namespace

void NonfiniteSearch::visit(const TracedCall& call) {
  if (!origin_.operation.empty()) {
    return;
  }
  const bool may_begin = suspect_within_ == nullptr && call.operation.has_value();
  if (!may_begin && suspect_within_ != &call) {
    return;  // nothing hangs on its values
  }
  const auto value = leaves_memory_unset(call) ? std::nullopt : nonfinite_output(call);
  if (may_begin && value && !is_given_nonfinite(call)) {
    const TracedCall& outer = outermost(call);
    suspect_ = {call.name, &outer == &call ? "" : outer.name, call.scope, call.in_backward, *value};
    suspect_within_ = &outer;
  }
  // What an operation makes and masks itself is none: the derivative of a norm divides by 0.
  if (suspect_within_ == &call) {
    origin_ = value ? suspect_ : NonfiniteOrigin();
    suspect_within_ = nullptr;
  }
}

NonfiniteOrigin find_nonfinite_origin(const std::function<void()>& step) {
  NonfiniteSearch search;
  trace_calls(step, [&](const TracedCall& call) { search.visit(call); });
  return search.origin();
}

}  // namespace mantissa::monitor
