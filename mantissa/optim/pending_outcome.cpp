#include "mantissa/optim/pending_outcome.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "mantissa/base/error.h"

namespace mantissa::optim {

// An event right behind the copy: a read waits for this one, and not for what was enqueued since.
struct PendingOutcome::Transfer {
  explicit Transfer(const at::Tensor& applied)
      : on_host(at::empty({}, at::TensorOptions(at::kBool).pinned_memory(applied.is_cuda()))),
        arrived(applied.device().type()) {
    on_host.copy_(applied, /*non_blocking=*/true);
    const c10::impl::VirtualGuardImpl device(applied.device().type());
    arrived.record(device.getStream(applied.device()));
  }

  at::Tensor on_host;
  c10::Event arrived;
};

PendingOutcome::PendingOutcome(StepOutcome outcome)
    : known_(outcome),
      applied_(at::full({}, outcome == StepOutcome::applied, at::TensorOptions(at::kBool))) {}

PendingOutcome::PendingOutcome(const at::Tensor& applied, OutcomeTransfer transfer)
    : applied_(applied) {
  MANTISSA_CHECK(applied.defined() && applied.dim() == 0 && applied.scalar_type() == at::kBool,
                 InvalidArgument, "PendingOutcome: applied is not a 0-d Bool tensor; pass one");
  if (transfer == OutcomeTransfer::behind_step && !applied.is_cpu() && !applied.is_meta()) {
    transfer_ = std::make_shared<const Transfer>(applied);
  }
}

StepOutcome PendingOutcome::read() const {
  if (known_) {
    return *known_;
  }
  if (transfer_) {
    transfer_->arrived.synchronize();
  }
  const at::Tensor& here = transfer_ ? transfer_->on_host : applied_;
  return here.item<bool>() ? StepOutcome::applied : StepOutcome::skipped;
}

}  // namespace mantissa::optim
