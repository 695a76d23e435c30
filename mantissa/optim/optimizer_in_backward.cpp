#include "mantissa/optim/optimizer_in_backward.h"

#include <cmath>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "mantissa/base/error.h"
#include "mantissa/ops/gradient_pass.h"
#include "mantissa/optim/parameter_slot.h"

namespace mantissa::optim {

namespace autograd = torch::autograd;

struct OptimizerInBackward::Step {
  double lr;
  at::Tensor scale;
  int64_t number;
  std::vector<bool> is_done;  // by slot
  double squares = 0;
};

class OptimizerInBackward::Hook : public autograd::PostAccumulateGradHook {
 public:
  Hook(std::unique_ptr<PostAccumulateGradHook> first, std::shared_ptr<OptimizerInBackward*> owner,
       size_t slot)
      : first_(std::move(first)), owner_(std::move(owner)), slot_(slot) {}

  void operator()(const autograd::Variable& parameter) override {
    if (first_) {
      (*first_)(parameter);
    }
    if (*owner_ != nullptr) {
      (*owner_)->update(slot_);
    }
  }

 private:
  std::unique_ptr<PostAccumulateGradHook> first_;
  std::shared_ptr<OptimizerInBackward*> owner_;
  size_t slot_;
};

OptimizerInBackward::OptimizerInBackward(Optimizer& optimizer)
    : optimizer_(optimizer), self_(std::make_shared<OptimizerInBackward*>(this)) {
  optimizer.require_whole();
  MANTISSA_CHECK(optimizer.is_fused(), Unsupported, "optimizer in backward: the optimizer is on ",
                 optimizer.device(),
                 " and not fused; pass one of fused passes on cpu, or step after backward");
  for (size_t i = 0; i < optimizer.slots_.size(); ++i) {
    const at::Tensor& parameter = optimizer.slots_[i].parameter;
    if (parameter.requires_grad()) {
      auto first = std::move(autograd::impl::post_acc_grad_hooks(parameter));
      autograd::impl::set_post_acc_grad_hooks(parameter,
                                              std::make_unique<Hook>(std::move(first), self_, i));
    }
  }
}

OptimizerInBackward::~OptimizerInBackward() { *self_ = nullptr; }

void OptimizerInBackward::begin(const StepOptions& options) {
  MANTISSA_CHECK(step_ == nullptr, InvalidArgument,
                 "optimizer in backward: begin() after begin(); call finish() after backward");
  MANTISSA_CHECK(!options.clip_factor.defined(), InvalidArgument,
                 "optimizer in backward: a clip_factor needs the norm of all gradients, and most "
                 "are gone when it is known; leave it out, or step after backward");
  MANTISSA_CHECK(!options.found_inf.defined(), InvalidArgument,
                 "optimizer in backward: found_inf skips a whole step, and most of it is done when "
                 "it is known; leave it out with FP32 and BF16, or step after backward");
  for (const ParameterSlot& slot : optimizer_.slots_) {
    MANTISSA_CHECK(!slot.parameter.grad().defined() && !slot.accumulator.defined(), InvalidArgument,
                   "optimizer in backward: parameter \"", slot.name,
                   "\" has a gradient from before; call zero_grad()");
  }
  step_ =
      std::make_unique<Step>(Step{optimizer_.rate_of(options.lr), options.scale, optimizer_.steps(),
                                  std::vector<bool>(optimizer_.slots_.size())});
}

void OptimizerInBackward::update(size_t slot_index) {
  const at::NoGradGuard no_grad;
  ParameterSlot& slot = optimizer_.slots_[slot_index];
  MANTISSA_CHECK(step_ != nullptr, InvalidArgument, "optimizer in backward: parameter \"",
                 slot.name,
                 "\" got a gradient outside of a step; call begin() before backward and finish() "
                 "after it");
  // What throws ends the step.
  std::unique_ptr<Step> step = std::move(step_);
  MANTISSA_CHECK(!step->is_done[slot_index], InvalidArgument, "optimizer in backward: parameter \"",
                 slot.name,
                 "\" got a second gradient in one step; sums over microbatches or several losses "
                 "need all of them: step after backward");
  const ops::GradientPass pass = optimizer_.read({slot.parameter.grad()}, step->scale);
  MANTISSA_CHECK(pass.found_inf.item<float>() == 0, Error,
                 "optimizer in backward: the gradient of "
                 "parameter \"",
                 slot.name,
                 "\" is not finite and is not applied, but those before it were; go on from a "
                 "checkpoint, or step after backward with found_inf");
  slot.forget_lost();
  optimizer_.apply_fused({&slot}, step->lr, step->number, {step->scale, {}, {}});
  slot.parameter.mutable_grad() = at::Tensor();
  const double norm = pass.norm.item<double>();
  step->squares += norm * norm;
  step->is_done[slot_index] = true;
  step_ = std::move(step);
}

InBackwardReport OptimizerInBackward::finish() {
  MANTISSA_CHECK(step_ != nullptr, InvalidArgument,
                 "optimizer in backward: finish() without begin(); call begin() before backward");
  const std::unique_ptr<Step> step = std::move(step_);
  for (const ParameterSlot& slot : optimizer_.slots_) {
    MANTISSA_CHECK(!slot.parameter.grad().defined(), InvalidArgument,
                   "optimizer in backward: the gradient of parameter \"", slot.name,
                   "\" was not applied; it required none when this was made: make it after "
                   "requires_grad_()");
  }
  InBackwardReport report;
  for (const bool is_done : step->is_done) {
    if (is_done) {
      report.outcome = StepOutcome::applied;
    }
  }
  if (report.outcome == StepOutcome::applied) {
    const at::NoGradGuard no_grad;
    optimizer_.steps_.add_(1);
  }
  report.norm = std::sqrt(step->squares);
  return report;
}

}  // namespace mantissa::optim
