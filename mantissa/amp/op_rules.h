#pragma once

#include <cstdint>
#include <string_view>

#include "mantissa/base/api.h"

namespace mantissa::amp {

/// What an autocast region does with one operation. A tensor argument is *eligible* when it is
/// defined, of a floating-point dtype and not double; all others pass as they are. Casts are
/// recorded by autograd, so that the gradient of an FP32 tensor is FP32.
enum class Rule : uint8_t {
  lower,         // eligible arguments are cast to the compute format of the policy
  fp32,          // eligible arguments are cast to FP32
  fp32_output,   // an eligible first argument stays, and a `dtype` that the caller left open is
                 // FP32; an operation without `dtype` is called by its overload which has one
  lower_output,  // arguments stay; a `dtype` that the caller left open is the compute format, or,
                 // of operations without one, results of FP32 are cast to it
  widest,        // eligible arguments are cast to the widest dtype among them; FP16 with BF16: FP32
  to_self,       // of an in-place operation: eligible arguments are cast to the dtype of `self`
  keep,          // as if not listed
  banned,        // the call throws InvalidArgument
};

/// The enumerator, as in policy files and messages.
MANTISSA_API std::string_view to_string(Rule rule);

/// Throws InvalidArgument with the nearest valid name.
MANTISSA_API Rule parse_rule(std::string_view name);

struct OpRule {
  std::string_view operation;
  Rule rule;
};

}  // namespace mantissa::amp
