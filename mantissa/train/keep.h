#pragma once

#include <compare>
#include <functional>
#include <string>
#include <vector>

#include "mantissa/amp/policy.h"
#include "mantissa/base/api.h"
#include "mantissa/numerics/format.h"

namespace mantissa::train {

/// What a policy is asked to keep in FP32: an operation (`aten::mm`), in the scopes that a glob
/// covers (amp::covers). Without a scope it is everywhere, outside of all scopes too; without an
/// operation every one that the policy lowers there.
struct Keep {
  std::string scope;
  std::string operation;

  auto operator<=>(const Keep&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// `aten::mm in blocks.*.attention`, `all of head`, `aten::mm`, `everything`.
MANTISSA_API std::string to_string(const Keep& keep);

/// `policy` with `change` of each of its formats in its place.
MANTISSA_API amp::Policy with_formats(
    const amp::Policy& policy, const std::function<numerics::Format(numerics::Format)>& change);

/// `policy` with these in FP32 on top.
MANTISSA_API amp::Policy with_kept(const amp::Policy& policy, const std::vector<Keep>& keep);

/// Runs `step` once, traced, and lists what of it a policy could keep in FP32: each operation of
/// the forward pass that read or made 16-bit numbers, in its scope, in the order of the step, and
/// each such scope as a whole. Operations that write into their arguments or return views of them
/// take no rule and are left out. Throws what monitor::trace_calls throws, but not what the step
/// throws once it has called something: what it called until then is listed.
MANTISSA_API std::vector<Keep> candidates(const std::function<void()>& step);

}  // namespace mantissa::train
