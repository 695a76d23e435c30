#include "mantissa/train/keep.h"

#include <algorithm>
#include <exception>
#include <set>

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>

#include "mantissa/base/error.h"
#include "mantissa/monitor/call_values.h"
#include "mantissa/monitor/trace.h"
#include "mantissa/tensor/dtype.h"

namespace mantissa::train {

using numerics::Format;

namespace {

std::string qualified(const std::string& operation) {
  return operation.find("::") == std::string::npos ? "aten::" + operation : operation;
}

// Of a key of Policy::rules: without overload and scopes.
std::string operation_of(const std::string& key) { return key.substr(0, key.find_first_of(".@")); }

template <typename Predicate>
bool any_tensor(const std::vector<c10::IValue>& values, const Predicate& predicate) {
  const std::vector<at::Tensor> tensors = monitor::tensors_in(values);
  return std::any_of(tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) {
    return tensor.defined() && predicate(tensor);
  });
}

bool is_16bit(const at::Tensor& tensor) { return tensor::is_16bit(tensor.scalar_type()); }

bool takes_a_rule(const monitor::TracedCall& call) {
  const c10::FunctionSchema& schema = call.operation->schema();
  const auto& returns = schema.returns();
  const auto is_floating = [](const at::Tensor& tensor) { return tensor.is_floating_point(); };
  return any_tensor(call.inputs, is_floating) && !schema.is_mutable() && !returns.empty() &&
         std::all_of(returns.begin(), returns.end(),
                     [](const c10::Argument& value) { return value.alias_info() == nullptr; });
}

}  // namespace

std::string to_string(const Keep& keep) {
  if (keep.operation.empty()) {
    return keep.scope.empty() ? "everything" : "all of " + keep.scope;
  }
  return keep.scope.empty() ? keep.operation : concat(keep.operation, " in ", keep.scope);
}

amp::Policy with_formats(const amp::Policy& policy, const std::function<Format(Format)>& change) {
  amp::Policy result = policy;
  result.compute = change(policy.compute);
  result.param = change(policy.param);
  if (policy.output) {
    result.output = change(*policy.output);
  }
  for (auto& [glob, format] : result.scopes) {
    format = change(format);
  }
  for (auto& [glob, format] : result.parameters) {
    format = change(format);
  }
  return result;
}

amp::Policy with_kept(const amp::Policy& policy, const std::vector<Keep>& keep) {
  amp::Policy result = policy;
  for (const auto& [scope, operation] : keep) {
    if (scope.empty() && operation.empty()) {
      result = with_formats(result, [](Format) { return Format::fp32; });
    } else if (operation.empty()) {
      result.scopes.insert_or_assign(scope, Format::fp32);
    } else if (scope.empty()) {
      const std::string key = qualified(operation);
      // Entries of its overloads and in scopes would go before it.
      std::erase_if(result.rules, [&](const auto& rule) {
        return operation_of(rule.first) == operation_of(key) && policy.rules.contains(rule.first);
      });
      result.rules.insert_or_assign(key, amp::Rule::fp32);
    } else {
      result.rules.insert_or_assign(concat(qualified(operation), "@", scope), amp::Rule::fp32);
    }
  }
  return result;
}

std::vector<Keep> candidates(const std::function<void()>& step) {
  std::vector<Keep> result;
  std::set<Keep> known;
  std::set<std::string> scopes;
  const auto visit = [&](const monitor::TracedCall& call) {
    if (call.in_backward || !call.operation ||
        !(any_tensor(call.inputs, is_16bit) || any_tensor(call.outputs, is_16bit))) {
      return;
    }
    const monitor::TracedCall& outermost = monitor::outermost(call);
    if (!outermost.operation || !takes_a_rule(outermost)) {
      return;
    }
    const Keep keep = {outermost.scope, outermost.name};
    if (known.insert(keep).second) {
      result.push_back(keep);
    }
  };
  try {
    monitor::trace_calls(step, visit);
  } catch (const std::exception&) {
    if (result.empty()) {
      throw;
    }
  }
  const std::vector<Keep> operations = result;
  for (const auto& [scope, operation] : operations) {
    if (!scope.empty() && scopes.insert(scope).second) {
      result.push_back({scope, ""});
    }
  }
  return result;
}

}  // namespace mantissa::train
