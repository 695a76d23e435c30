#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include "mantissa/base/api.h"

namespace mantissa::monitor {

/// One call of an operation, or one node of the backward pass, once it has ended.
struct TracedCall {
  std::string name;                              // `aten::add_`, `MmBackward0`
  std::optional<c10::OperatorHandle> operation;  // none for a node
  std::string scope;  // tensor::Scope of the call; in the backward pass that of the forward call
  bool in_backward = false;
  std::string node;                   // in which the operation runs; empty outside of any
  std::string after_node = {};        // whose gradients the engine sums or adds with it
  const TracedCall* outer = nullptr;  // the call that made this one, valid during the visit

  /// The arguments of the schema. A tensor that the operation writes into is a copy from before.
  /// For a node: the gradients that arrive.
  std::vector<c10::IValue> inputs;

  /// Empty when the call threw. For a node: what its operations made and none of them took.
  std::vector<c10::IValue> outputs;

  /// For a node: what its operations took and none of them made, such as saved tensors.
  std::vector<at::Tensor> saved;

  /// The operation was called again with other arguments, as by an autocast region: those of the
  /// inner call are what the kernel gets.
  bool is_recast = false;
};

/// Visits every call that is made through LibTorch's dispatcher for as long as it lives, on this
/// thread and on those of its backward passes, inner calls first. A call comes with the formats in
/// which its kernel runs.
///
/// It observes with at::RecordFunction rather than with a boxed fallback on a dispatch key: no key
/// is taken, nothing is redispatched so the step computes what it computes untraced, calls above
/// and below autograd are both seen, and nodes come with the number that leads to their forward
/// call. What kernels do without the dispatcher is not seen. `visit` may call operations, which run
/// without autograd and autocast and are not traced; two visits never run at once. It ends in the
/// thread that it began in. What ends later than it is not visited.
class MANTISSA_API Trace {
 public:
  /// Throws InvalidArgument while another trace lives.
  explicit Trace(std::function<void(const TracedCall&)> visit);
  ~Trace();

  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// Ends it, and rethrows what a visit threw; nothing was visited after that.
  void finish();

  /// Time that it and its visits took so far.
  double cost_s() const;

 private:
  class Tracer;

  void stop();

  std::unique_ptr<Tracer> tracer_;
  std::optional<uint64_t> handle_;  // of the callback, while it observes
};

/// A Trace over one call of `step`. Rethrows what `step` and `visit` throw.
MANTISSA_API void trace_calls(const std::function<void()>& step,
                              const std::function<void(const TracedCall&)>& visit);

}  // namespace mantissa::monitor
