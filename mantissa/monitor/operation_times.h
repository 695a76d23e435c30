#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/monitor/operation_cost.h"
#include "mantissa/monitor/time_split.h"

namespace mantissa::monitor {

/// Calls of one operation in one place and format, or runs of a node of the backward pass.
struct OperationTime {
  Phase phase = Phase::other;
  std::string scope;  // tensor::Scope of the call; in the backward pass that of the forward call
  std::string operation;  // `aten::mm`, `GeluBackward0`; `autocast` for what a region does about a
                          // call but for its casts
  std::string within;     // the operation that was called and led to it, such as `aten::linear`; in
                          // the backward pass that of the forward call
  OperationKind kind = OperationKind::other;
  std::string format;  // of its floating-point arguments, of a product of its factors, as the
                       // kernel got them: `bf16`, `bf16 fp32`; empty without any
  bool on_cpu = true;
  int64_t calls = 0;
  double time_s = 0;       // without that of other rows
  double flops = 0;        // see OperationCost
  double bytes = 0;        // of arguments and results, each once; 0 of views
  bool is_aligned = true;  // of a product: see OperationCost

  bool operator==(const OperationTime&) const = default;
};

/// Times every operation that is called through LibTorch's dispatcher for as long as it lives, on
/// this thread and on those of its backward passes. A product, a cast and a convolution is one row
/// with all that its kernel calls. Times of operations inside others are taken from the outer ones,
/// so that rows add up. What kernels do without the dispatcher, such as the fused optimizer, is in
/// no row, nor is what autograd does between its nodes. On other devices than the CPU a time is
/// that of the call, not of the kernel.
///
/// It observes with at::RecordFunction: the step computes, bit for bit, what it does without. It
/// costs one or two microseconds a call, which are in no row.
///
///     TimeSplit phases;
///     OperationTimes times(&phases);
///     ... the step ...
///     times.finish();
class MANTISSA_API OperationTimes {
 public:
  /// `phases`, if given, says the phase of each call and outlives it. Throws InvalidArgument while
  /// another one lives.
  explicit OperationTimes(const TimeSplit* phases = nullptr);
  ~OperationTimes();

  OperationTimes(const OperationTimes&) = delete;
  OperationTimes& operator=(const OperationTimes&) = delete;

  /// Ends it. The rows, those with the most time first. Throws what went wrong while it looked.
  std::vector<OperationTime> finish();

  /// What looking took of a phase.
  double look_s(Phase phase) const;

 private:
  class Observer;

  void stop();

  std::unique_ptr<Observer> observer_;
  std::optional<uint64_t> handle_;  // of the callback, while it observes
};

}  // namespace mantissa::monitor
