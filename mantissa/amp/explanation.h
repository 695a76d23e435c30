#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "mantissa/amp/policy.h"
#include "mantissa/base/api.h"

namespace mantissa::amp {

/// What happens to one argument of one call.
struct ArgumentCast {
  std::string name;  // in the operation's schema
  std::string from;
  std::string to;  // equal to `from` when nothing is cast
};

/// What a region makes of a call of one overload.
struct Explanation {
  std::string operation;  // `aten::mm`
  Rule rule = Rule::keep;
  std::string source;  // of the rule, as in ResolvedRule; "not listed" for keep
  std::vector<ArgumentCast> arguments;
  std::string outcome;  // a sentence
  std::string note;     // when floating arguments differ in format after the casts; else empty
};

/// For each overload of `operation` (a key of Policy::rules) that takes that many tensors.
/// `formats` are those of its tensor arguments in order: fp32, bf16, fp16, fp64 or int; arguments
/// beyond them are left out of the call. `scope` is the path in which it is made. Throws
/// InvalidArgument for an unknown operation or format, and when no overload takes as many tensors.
MANTISSA_API std::vector<Explanation> explain(const Policy& policy, std::string_view operation,
                                              const std::vector<std::string>& formats,
                                              std::string_view scope = {});

}  // namespace mantissa::amp
