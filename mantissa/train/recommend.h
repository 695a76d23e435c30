#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/amp/policy.h"
#include "mantissa/base/api.h"
#include "mantissa/train/keep.h"

namespace mantissa::train {

/// What cures a failing step, cheapest first. The text of an enumerator is its name.
enum class Curable : uint8_t {
  healthy,           // nothing to cure
  by_scale,          // the same policy with a loss scale
  by_range,          // bf16 in the place of fp16, for its exponents
  by_policy,         // FP32 for some operations
  not_by_precision,  // it fails with all in FP32 too
};

MANTISSA_API std::string_view to_string(Curable curable);

struct RecommendOptions {
  int max_trials = 64;  // calls of `healthy` and `healthy_scaled`, at least 8

  /// The same step with a loss scale; empty where that is not to be tried.
  std::function<bool(const amp::Policy&)> healthy_scaled = {};

  /// Look for what to keep in FP32 although a loss scale or another format would do.
  bool only_policy = false;
};

struct Recommendation {
  Curable curable = Curable::healthy;
  std::vector<Keep> keep;  // with by_policy
  amp::Policy policy;      // that cures; the given one when nothing does or need be
  int trials = 0;
  std::string why;  // half a line
};

/// Finds out whether precision cures a failing step and with what. `healthy(policy)` runs the step,
/// or several, under `policy` and says whether it is well; it must give the same answer for the
/// same policy, and is not asked twice. What it throws counts as not well.
///
/// Tried are, in this order: the policy as it is; a loss scale; BF16 for FP16; all in FP32. Then
/// the set of candidates to keep in FP32 is made smaller by bisection (U. Junker, QuickXplain, AAAI
/// 2004), over kinds of scopes (`blocks.*.attention`), over the operations in those, over single
/// scopes, to one from which nothing can be taken without the step failing again. There may be
/// other such sets. The policy of the result was itself tried and is well.
///
///     const auto healthy = [&](const amp::Policy& p) { return std::isfinite(loss_under(p)); };
///     const auto cure = train::recommend(policy, train::candidates(step), healthy);
///     std::cout << cure.why << "\n" << amp::to_toml(cure.policy);
///
/// Throws InvalidArgument for a policy or candidates that no policy can hold.
MANTISSA_API Recommendation recommend(const amp::Policy& policy,
                                      const std::vector<Keep>& candidates,
                                      const std::function<bool(const amp::Policy&)>& healthy,
                                      const RecommendOptions& options = {});

}  // namespace mantissa::train
