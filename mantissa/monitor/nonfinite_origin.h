#pragma once

#include <functional>
#include <string>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/monitor/nonfinite_end.h"
#include "mantissa/monitor/trace.h"
#include "mantissa/tensor/parameter_list.h"

namespace mantissa::monitor {

class ValueSources;

/// What the operation that made the value was given.
struct OriginInput {
  std::string name;            // in the operation's schema: `mat2`
  std::string format;          // `fp16`; empty for a number that is no tensor
  double value = 0;            // see `is_at_place`
  bool is_at_place = false;    // of a pointwise operation: there where the result is not finite
                               // first; else the one of the largest magnitude
  bool is_given = false;       // to the step, which did not make it; the rest is empty then
  std::string operation = {};  // that made it: `aten::linear`; empty where nobody looked
  std::string scope = {};      // in which that ran
  bool in_backward = false;
  std::string parameter = {};  // that it is; its name

  bool operator==(const OriginInput&) const = default;
};

/// Where the first value that is not finite came from.
struct NonfiniteOrigin {
  std::string operation;  // `aten::mm`; empty: none was seen
  std::string within;     // the outermost call or backward node around it, if any: `aten::linear`
  std::string scope;      // tensor::Scope of the forward operation; empty: outside of any
  bool in_backward = false;              // in the gradient of that operation
  double value = 0;                      // inf, -inf or nan
  std::string format = {};               // of the result
  std::vector<OriginInput> inputs = {};  // floating-point ones, that which is to blame first
  bool is_given = false;  // no operation made the value: the step's data or parameters hold it, or
                          // memory that none wrote; `operation` is the first that got it

  bool operator==(const NonfiniteOrigin&) const = default;
};

/// `inf from aten::mm within aten::linear in fp16 (blocks.0.mlp), whose mat2 reaches 40, from
/// aten::gelu (blocks.0.mlp)`.
MANTISSA_API std::string describe(const NonfiniteOrigin& origin);

/// Runs `step` and finds the first operation that made a value that is not finite from finite ones,
/// and which of its inputs is to blame: one that is 0 where a function has no value at 0 (log, a
/// division), else that with the largest magnitude; and what made that. `parameters` names inputs.
/// An operation that is given an infinity, as masked_fill by -inf, made none, unless it makes NaN
/// of it (inf - inf, softmax of -inf alone); nor did one whose caller, an operation or a node,
/// returns finite values all the same; nor is anything an origin that the code replaces by finite
/// numbers before it reaches the end of the step (monitor/nonfinite_end.h). Where none made any,
/// but the last result or a gradient is not finite, it is what was given. A cast that overflows is
/// `aten::copy_` within the operation that needed it. Looks at every argument and result: several
/// times the cost of the step. Throws what trace_calls throws.
MANTISSA_API NonfiniteOrigin find_nonfinite_origin(const std::function<void()>& step,
                                                   const tensor::ParameterList& parameters = {});

/// The same over the calls of a Trace, in their order.
class MANTISSA_API NonfiniteSearch {
 public:
  /// `sources`, which outlive the search, tell where inputs came from.
  explicit NonfiniteSearch(const ValueSources* sources = nullptr) : sources_(sources) {}

  void visit(const TracedCall& call);

  /// Whether the next calls decide about what was seen: all of them are to be visited then, at
  /// other times those that return a value which is not finite.
  bool has_suspect() const {
    return suspect_within_ != nullptr || (!origin_.operation.empty() && !end_.is_settled());
  }

  /// Once the step has ended: none, where what it made was replaced.
  NonfiniteOrigin origin() const { return end_.is_replaced() ? NonfiniteOrigin() : origin_; }

 private:
  const ValueSources* sources_;
  NonfiniteOrigin origin_;
  NonfiniteOrigin suspect_;
  const TracedCall* suspect_within_ = nullptr;
  NonfiniteEnd end_;  // of what the origin made
};

}  // namespace mantissa::monitor
