#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "mantissa/amp/policy.h"
#include "mantissa/amp/torch_lists.h"

namespace mantissa::amp {

/// A base: what a policy starts from. Its rules name operations as keys of Policy::rules do,
/// without the namespace of ATen.
struct ShippedPolicy {
  std::string_view summary;
  std::optional<TorchList> list;  // the rules of torch, under ...
  std::span<const OpRule> rules;  // ... these
  Policy defaults;                // with the name as its base and without rules
};

/// Throws InvalidArgument with the nearest valid name.
MANTISSA_API const ShippedPolicy& shipped_policy(std::string_view name);

/// The rules that a switch adds when it is on; empty for one that is not about rules.
MANTISSA_API std::span<const OpRule> rules_of(Fix fix);

}  // namespace mantissa::amp
