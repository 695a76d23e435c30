#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "mantissa/monitor/lint.h"
#include "mantissa/monitor/trace.h"

namespace mantissa::monitor {

/// What a rule says of one call; the rest of a Finding is known from the call.
struct Hit {
  Severity severity = Severity::hazard;
  std::string format;
  std::string value;
  std::string consequence;
  std::string remedy;
  bool of_values = false;
  std::string scope = {};  // when not that of the call
};

using Hits = std::vector<Hit>;

/// A rule: what it is, and the function that looks at a call once it has ended. It must not keep
/// the call and may call operations.
struct RuleEntry {
  LintRule about;
  Hits (*check)(const TracedCall& call, const LintOptions& options);
};

// Rules that look at constants and at what a call is, not at numbers.
Hits check_constant(const TracedCall& call, const LintOptions& options);
Hits check_half_fft(const TracedCall& call, const LintOptions& options);
Hits check_tensor_core_size(const TracedCall& call, const LintOptions& options);
Hits check_batch_norm(const TracedCall& call, const LintOptions& options);
Hits check_gradient_sum(const TracedCall& call, const LintOptions& options);
Hits check_loss(const TracedCall& call, const LintOptions& options);

// Rules that look at the numbers of this step.
Hits check_position(const TracedCall& call, const LintOptions& options);
Hits check_domain(const TracedCall& call, const LintOptions& options);
Hits check_overflow(const TracedCall& call, const LintOptions& options);
Hits check_underflow(const TracedCall& call, const LintOptions& options);
Hits check_index(const TracedCall& call, const LintOptions& options);
Hits check_repeated_index(const TracedCall& call, const LintOptions& options);
Hits check_lost_update(const TracedCall& call, const LintOptions& options);

/// Does check_domain look at operations of that name (`log`)? check_overflow leaves them to it.
bool has_domain(std::string_view operation);

}  // namespace mantissa::monitor
