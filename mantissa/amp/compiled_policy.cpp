#include "mantissa/amp/compiled_policy.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include "mantissa/amp/autocast_kernel.h"
#include "mantissa/amp/operations.h"
#include "mantissa/amp/unboxed_kernel.h"
#include "mantissa/base/error.h"
#include "mantissa/tensor/dtype.h"
#include "mantissa/tensor/scope.h"

namespace mantissa::amp {
namespace {

class Registry {
 public:
  const CompiledPolicy& compiled(const Policy& policy) {
    const std::lock_guard lock(mutex_);
    const auto known = policies_.find(policy);
    if (known != policies_.end()) {
      return known->second;
    }
    const std::map<std::string, ResolvedRule> rules = resolved_rules(policy);
    const OperationIndex operations;
    claim_key(operations);
    CompiledPolicy result{policy,
                          tensor::dtype_of(policy.compute),
                          policy.fixes.contains(Fix::reduce),
                          policy.fixes.contains(Fix::foreign),
                          {},
                          {}};
    for (const auto& [operation, resolved] : rules) {
      const size_t number = number_of(operation, operations);
      result.rules.resize(std::max(result.rules.size(), number + 1), Rule::keep);
      result.rules[number] = resolved.rule;
    }
    for (const ScopedRule& scoped : scoped_rules(policy)) {
      result.scoped_rules.push_back(
          {scoped.glob, number_of(scoped.operation, operations), scoped.resolved.rule});
    }
    return policies_.emplace(policy, std::move(result)).first->second;
  }

 private:
  void claim_key(const OperationIndex& operations) {
    if (fallthrough_) {
      return;
    }
    auto& dispatcher = c10::Dispatcher::singleton();
    MANTISSA_CHECK(dispatcher.getRegistrationsForDispatchKey(kAutocastKey).empty() &&
                       !dispatcher.hasBackendFallbackForDispatchKey(kAutocastKey),
                   Unsupported, "autocast: another library has kernels for dispatch key ",
                   c10::toString(kAutocastKey), "; use mantissa without it");
    auto library = std::make_unique<torch::Library>(torch::Library::IMPL, "_", kAutocastKey,
                                                    __FILE__, __LINE__);
    library->fallback(torch::CppFunction::makeFallthrough());
    fallthrough_ = std::move(library);
    for (const std::string& name : policy_names()) {
      // It lists add, mul and div, and a kernel costs them 100 ns in regions of other policies too.
      if (name == "apex-o1") {
        continue;
      }
      for (const auto& [operation, rule] : resolved_rules(find_policy(name))) {
        (void)number_of(operation, operations);
      }
    }
  }

  size_t number_of(const std::string& operation, const OperationIndex& operations) {
    const auto known = numbers_.find(operation);
    if (known != numbers_.end()) {
      return known->second;
    }
    const size_t number = numbers_.size();
    register_kernel(operation, number, operations);
    numbers_.emplace(operation, number);
    return number;
  }

  void register_kernel(const std::string& operation, size_t number,
                       const OperationIndex& operations) {
    auto& dispatcher = c10::Dispatcher::singleton();
    const auto handle = dispatcher.findSchema(operator_name(operation));
    MANTISSA_ASSERT(handle.has_value());
    AutocastKernel general(*handle, number, operations);
    auto kernel = unboxed_kernel(*handle, number, general);
    if (!kernel) {
      kernel = c10::KernelFunction::makeFromBoxedFunctor(
          std::make_unique<AutocastKernel>(std::move(general)));
    }
    kernels_.push_back(dispatcher.registerImpl(handle->operator_name(), kAutocastKey,
                                               std::move(*kernel), std::nullopt, nullptr,
                                               "mantissa autocast"));
  }

  std::mutex mutex_;
  std::unique_ptr<torch::Library> fallthrough_;
  std::vector<c10::RegistrationHandleRAII> kernels_;
  std::map<std::string, size_t> numbers_;  // of operations with a kernel
  std::map<Policy, CompiledPolicy> policies_;
};

Rule rule_in(const std::vector<Rule>& rules, size_t number) {
  return number < rules.size() ? rules[number] : Rule::keep;
}

// What a policy says in one scope.
struct InScope {
  at::ScalarType compute{};
  std::vector<Rule> rules;
};

InScope in_scope(const CompiledPolicy& policy, const std::string& scope) {
  InScope result{tensor::dtype_of(compute_format(policy.policy, scope)), policy.rules};
  for (const auto& [glob, number, rule] : policy.scoped_rules) {
    if (covers(glob, scope)) {
      result.rules.resize(std::max(result.rules.size(), number + 1), Rule::keep);
      result.rules[number] = rule;
    }
  }
  return result;
}

// Looked up again only when the scope has changed.
const InScope& in_this_scope(const CompiledPolicy& policy) {
  struct Memo {
    const CompiledPolicy* policy = nullptr;
    uint64_t scope_changes = 0;
    const InScope* here = nullptr;
    std::map<std::pair<const CompiledPolicy*, std::string>, InScope> all;
  };
  thread_local Memo memo;
  if (memo.policy != &policy || memo.scope_changes != tensor::scope_changes()) {
    std::pair key(&policy, tensor::current_scope());
    auto entry = memo.all.find(key);
    if (entry == memo.all.end()) {
      entry = memo.all.emplace(std::move(key), in_scope(policy, tensor::current_scope())).first;
    }
    memo.policy = &policy;
    memo.scope_changes = tensor::scope_changes();
    memo.here = &entry->second;
  }
  return *memo.here;
}

}  // namespace

at::ScalarType compute_dtype(const CompiledPolicy& policy) {
  return policy.policy.scopes.empty() ? policy.compute : in_this_scope(policy).compute;
}

Rule rule_of(const CompiledPolicy& policy, size_t number) {
  return rule_in(policy.scoped_rules.empty() ? policy.rules : in_this_scope(policy).rules, number);
}

const CompiledPolicy& compiled(const Policy& policy) {
  // Never destroyed: other threads may still compute while static objects go.
  static Registry* registry = new Registry;
  return registry->compiled(policy);
}

}  // namespace mantissa::amp
