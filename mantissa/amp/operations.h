#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>

#include "mantissa/amp/op_rules.h"

namespace mantissa::amp {

/// `aten::mm` for `mm`; other names as they are.
std::string qualified(std::string_view operation);

/// Whether an argument of this type is a tensor, an optional tensor or a list of either.
bool holds_tensors(const c10::TypePtr& type);

/// The overloads that a key of Policy::rules stands for: those that a rule can apply to, never
/// none. Throws InvalidArgument with the nearest valid name; `where` begins the message.
std::vector<c10::OperatorHandle> find_overloads(std::string_view operation, Rule rule,
                                                std::string_view where);

/// The overload that `operation` becomes under Rule::fp32_output, or nothing when there is none:
/// itself when it has an optional `dtype`, else the overload with the same arguments and `dtype`.
std::optional<c10::OperatorHandle> with_dtype(const c10::OperatorHandle& operation);

}  // namespace mantissa::amp
