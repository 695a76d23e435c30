#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"
#include "mantissa/base/step_outcome.h"

namespace mantissa::optim {

/// How the answer of a device gets to the host.
enum class OutcomeTransfer : uint8_t {
  behind_step,  // it is sent right behind the step, and a read waits no further
  on_demand,  // a read fetches it, and waits for all that is enqueued: for steps that are captured
              // in a graph, in which no answer can be sent
};

/// What a step did, or will have done when its device gets there: a value of the device, which
/// selections on the device go by, and which the host reads when it asks.
///
/// A read waits for the step and no further: the answer is sent to the host behind the step itself.
/// So read it when the next step is enqueued, and the device never runs out of work: see Optimizer.
class MANTISSA_API PendingOutcome {
 public:
  /// nothing_to_do.
  PendingOutcome() : PendingOutcome(StepOutcome::nothing_to_do) {}

  /// One that the host knows.
  PendingOutcome(StepOutcome outcome);

  /// `applied`, or skipped where the 0-d Bool tensor is false, which must not change any more.
  explicit PendingOutcome(const at::Tensor& applied,
                          OutcomeTransfer transfer = OutcomeTransfer::behind_step);

  /// Waits for the device, unless the host knows the outcome already.
  StepOutcome read() const;

  /// Whether read() waits for nothing: the step ran on the CPU in fused passes, or there was
  /// nothing to do.
  bool is_known() const { return known_.has_value(); }

  /// 0-d Bool: whether the step was applied. On the device of the parameters, or on the CPU when
  /// the outcome is known.
  const at::Tensor& applied() const { return applied_; }

 private:
  struct Transfer;

  std::optional<StepOutcome> known_;
  at::Tensor applied_;
  std::shared_ptr<const Transfer> transfer_;  // from a device other than the CPU
};

}  // namespace mantissa::optim
