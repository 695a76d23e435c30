#pragma once

#include <functional>
#include <string>

#include "mantissa/base/api.h"
#include "mantissa/monitor/trace.h"

namespace mantissa::monitor {

/// Where the first value that is not finite came from.
struct NonfiniteOrigin {
  std::string operation;  // `aten::mm`; empty: none was seen
  std::string within;     // the outermost call or backward node around it, if any: `aten::linear`
  std::string scope;      // tensor::Scope of the forward operation; empty: outside of any
  bool in_backward = false;  // in the gradient of that operation
  double value = 0;          // inf, -inf or nan

  bool operator==(const NonfiniteOrigin&) const = default;
};

/// Runs `step` and finds the first operation that made a value that is not finite from finite ones.
/// An operation that is given an infinity, as masked_fill by -inf, made none, nor did one whose
/// caller, an operation or a node, returns finite values all the same. A cast that overflows
/// is `aten::copy_` within the operation that needed it. Looks at every argument and result:
/// several times the cost of the step. Throws what trace_calls throws.
MANTISSA_API NonfiniteOrigin find_nonfinite_origin(const std::function<void()>& step);

/// The same over the calls of a Trace, in their order.
class MANTISSA_API NonfiniteSearch {
 public:
  void visit(const TracedCall& call);

  /// Whether the next calls decide about what was seen: all of them are to be visited then, at
  /// other times those that return a value which is not finite.
  bool has_suspect() const { return suspect_within_ != nullptr; }

  const NonfiniteOrigin& origin() const { return origin_; }

 private:
  NonfiniteOrigin origin_;
  NonfiniteOrigin suspect_;
  const TracedCall* suspect_within_ = nullptr;
};

}  // namespace mantissa::monitor
