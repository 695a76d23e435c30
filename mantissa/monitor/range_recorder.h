#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"
#include "mantissa/monitor/nonfinite_origin.h"
#include "mantissa/monitor/ranges.h"
#include "mantissa/monitor/trace.h"
#include "mantissa/tensor/parameter_list.h"

namespace mantissa::monitor {

struct RangeOptions {
  tensor::ParameterList parameters = {};  // whose weights, gradients and updates are counted
  bool updates = true;                    // which takes a copy of every parameter

  /// The FP32 value of a parameter, where the step keeps one: updates are its changes. Empty: the
  /// parameter itself.
  std::function<at::Tensor(const tensor::Parameter&)> master = {};
};

/// Counts the values of one step for as long as it lives: what every operation returns, what
/// arrives at every node of the backward pass and at the parameters, the parameters and how they
/// change. The step computes what it does without. Operations that a region of no_grad calls, as
/// optimizers do, are no part of the forward pass. What views return is counted where it was made.
///
///     RangeRecorder recorder({.parameters = parameters});
///     ... forward, backward, update ...
///     recorder.finish();
///     recorder.ranges();
class MANTISSA_API RangeRecorder {
 public:
  /// Counts the weights. Throws what Trace throws.
  explicit RangeRecorder(RangeOptions options);
  ~RangeRecorder();

  RangeRecorder(const RangeRecorder&) = delete;
  RangeRecorder& operator=(const RangeRecorder&) = delete;

  /// Counts the updates and ends it. Throws what went wrong while it looked.
  void finish();

  const Ranges& ranges() const { return ranges_; }

  /// Of the first value that is not finite, as find_nonfinite_origin tells it.
  NonfiniteOrigin origin() const { return search_.origin(); }

  /// Time that it took so far.
  double cost_s() const;

 private:
  void visit(const TracedCall& call);
  void visit_forward(const TracedCall& call);
  void visit_node(const TracedCall& node);
  void hook_parameters();
  void unhook_parameters();
  at::Tensor value_of(const tensor::Parameter& parameter) const;

  RangeOptions options_;
  std::mutex mutex_;  // of the threads of a backward pass
  Ranges ranges_;
  NonfiniteSearch search_;
  std::map<const TracedCall*, std::vector<const void*>> made_within_;  // memory that was counted
  std::vector<at::Tensor> before_;
  std::vector<std::pair<at::Tensor, unsigned>> hooks_;
  double own_cost_s_ = 0;  // outside of the trace
  std::unique_ptr<Trace> trace_;
};

}  // namespace mantissa::monitor
