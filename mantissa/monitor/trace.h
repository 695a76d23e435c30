#pragma once

#include <functional>
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

/// Runs `step` and visits every call that it makes through LibTorch's dispatcher, on this thread
/// and on those of its backward pass, inner calls first. A call comes with the formats in which its
/// kernel runs.
///
/// It observes with at::RecordFunction rather than with a boxed fallback on a dispatch key: no key
/// is taken, nothing is redispatched so the step computes what it computes untraced, calls above
/// and below autograd are both seen, and nodes come with the number that leads to their forward
/// call. What kernels do without the dispatcher is not seen. `visit` may call operations, which run
/// without autograd and autocast and are not traced; two visits never run at once.
///
/// Rethrows what `step` and `visit` throw. Throws InvalidArgument while another step is traced.
MANTISSA_API void trace_calls(const std::function<void()>& step,
                              const std::function<void(const TracedCall&)>& visit);

}  // namespace mantissa::monitor
