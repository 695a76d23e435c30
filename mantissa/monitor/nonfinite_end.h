#pragma once

#include "mantissa/monitor/trace.h"

namespace mantissa::monitor {

/// What became of the values of a step that are not finite, from the first of them on. Code may put
/// other numbers in their place (where, masked_fill, nan_to_num, an index, a cast to integers), as
/// it does for logarithms of 0 that it does not choose and for rows that are masked whole: then
/// they are no fault. An operation that makes finite numbers of them otherwise (1 / inf is 0) has
/// used them.
class NonfiniteEnd {
 public:
  /// Each call after the one that made the first, inner ones first.
  void visit(const TracedCall& call);

  /// All that took them replaced them or handed them on, and the step ends without them: its last
  /// result and all gradients are finite.
  bool is_replaced() const {
    return was_replaced_ && !was_used_ && last_is_finite_ && gradients_are_finite_;
  }

  /// Nothing to come changes that they count.
  bool is_settled() const { return was_used_ || !gradients_are_finite_; }

 private:
  bool was_replaced_ = false;
  bool was_used_ = false;
  bool last_is_finite_ = false;  // result of the forward pass
  bool gradients_are_finite_ = true;
};

}  // namespace mantissa::monitor
