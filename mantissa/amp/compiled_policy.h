#pragma once

#include <string>
#include <vector>

#include <c10/core/DispatchKey.h>
#include <c10/core/ScalarType.h>

#include "mantissa/amp/policy.h"

namespace mantissa::amp {

/// The dispatch key that an Autocast region includes. It must lie above autograd, so that casts
/// are recorded. Of the autocast keys without kernels in LibTorch this is the one whose device
/// (Graphcore's IPU) no maintained library of kernels stands for any more; AutocastHPU, AutocastXLA
/// and AutocastPrivateUse1 are taken as soon as a user loads such a library.
inline constexpr c10::DispatchKey kAutocastKey = c10::DispatchKey::AutocastIPU;

/// A policy with its rules by operation number, for the lookup of one call.
struct CompiledPolicy {
  Policy policy;
  at::ScalarType compute;
  bool sums_gradients_in_fp32;  // Fix::reduce
  bool widens_foreign;          // Fix::foreign
  std::vector<Rule> rules;      // operations numbered later are not listed by this policy

  struct ScopedRule {
    std::string glob;
    size_t number;
    Rule rule;
  };
  std::vector<ScopedRule> scoped_rules;  // over `rules`; the last that holds decides
};

/// The rule of an operation in this thread's scope.
Rule rule_of(const CompiledPolicy& policy, size_t number);

/// The one compiled form of equal policies; lives as long as the process. The first call for a
/// policy checks it and gives every operation that it lists a kernel under kAutocastKey; the first
/// of all does so for the built-in tables but that of apex-o1, and takes some milliseconds. Kernels
/// are never taken away. LibTorch's dispatcher tables are not made to change while other threads
/// call the same operations, so policies with further operations are compiled before threads start.
/// Throws InvalidArgument for a policy that parse_policy would not give, and Unsupported when
/// another library uses the key.
const CompiledPolicy& compiled(const Policy& policy);

/// The dtype of `lower` rules in this thread's scope.
at::ScalarType compute_dtype(const CompiledPolicy& policy);

/// Of the region that this thread is in; null outside of regions and in a disabled one.
const CompiledPolicy* active_compiled_policy();

/// Likewise; null also where the policy has no entries for parameters.
class ParameterFormats;
const ParameterFormats* active_parameter_formats();

}  // namespace mantissa::amp
