#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mantissa/amp/loss_scaler.h"
#include "mantissa/base/api.h"
#include "mantissa/base/step_outcome.h"
#include "mantissa/tensor/state_dict.h"

namespace mantissa::amp {

/// The names and numbers of torch.amp.GradScaler 2.13.
struct GradScalerOptions {
  float init_scale = 65536.0F;     // 2^16
  float growth_factor = 2.0F;      // > 1; after `growth_interval` finite steps in a row
  float backoff_factor = 0.5F;     // in (0, 1); after a step with a gradient that is not finite
  int32_t growth_interval = 2000;  // finite steps, >= 1
  bool enabled = true;             // false: the loop runs as if there were no scaler

  bool operator==(const GradScalerOptions&) const = default;
};

/// What GradScaler steps: torch::optim's optimizers, or a type of yours with `step()` and
/// `parameters()`, a range of tensors. mantissa::optim::Optimizer is none: it unscales by itself
/// and goes with LossScaler.
template <typename T>
concept SteppableOptimizer = requires(T& optimizer) {
  optimizer.step();
  optimizer.parameters();
};

/// torch.amp.GradScaler for C++: for loops ported from Python and for torch::optim. New code gets
/// more from LossScaler with mantissa::optim::Optimizer: 16-bit parameters, no wait, no second pass
/// over the gradients.
///
///     amp::GradScaler scaler(at::kCPU);
///     scaler.scale(loss).backward();
///     scaler.unscale_(optimizer);                       // only to clip, after the last backward
///     torch::nn::utils::clip_grad_norm_(parameters, 1.0);
///     if (scaler.step(optimizer) == StepOutcome::applied) schedule.step();
///     scaler.update();                                  // once, after the steps of all optimizers
///
/// The scale moves as in torch 2.13. What is different, because torch's way loses a run in silence:
/// - The scale is always a finite normal FP32 number; options and states with another are refused.
///   A skip at the smallest one is an error, for no scale helps then.
/// - Gradients are checked after unscaling too, and sparse ones after duplicates were added.
/// - A gradient that two optimizers share is unscaled once.
/// - Scaled gradients added to unscaled ones between two updates are an error in `step`.
/// - An optimizer without gradients has nothing to do, and a loss of any shape is scaled in FP32.
/// - A tracker beyond the interval grows the scale at the next finite step.
/// - Options have no setters, and gradients are all on the device of the scale.
///
/// What it does not notice: a `scale` that was left out, for `unscale_` may come first (the
/// gradients are divided all the same), and a `zero_grad` that was left out over an `update`, which
/// leaves 1/scale of the last step's gradients in the next one's.
///
/// Of one thread and one rank: where ranks hold different gradients they would disagree about a
/// skip. LossScaler hands found_inf to you, to be reduced first.
class MANTISSA_API GradScaler {
 public:
  /// Throws InvalidArgument with the option, its value and what is valid.
  explicit GradScaler(at::Device device, const GradScalerOptions& options = {});
  ~GradScaler();

  GradScaler(GradScaler&&) noexcept;  // a copy would share its tensors
  GradScaler& operator=(GradScaler&&) noexcept;

  /// `scale * loss` in FP32; each of several losses. The loss itself when disabled.
  at::Tensor scale(const at::Tensor& loss);
  std::vector<at::Tensor> scale(at::TensorList losses);

  /// Divides the gradients of the optimizer's parameters by the scale in place, before clipping;
  /// `step` does it otherwise. At most once an optimizer between updates, after the last backward.
  /// It may come before any `scale`, for gradients that were scaled elsewhere or before a load.
  /// FP32, FP64 and BF16; FP16 would lose the bits that scaling has saved. Does not wait.
  template <SteppableOptimizer Optimizer>
  void unscale_(Optimizer& optimizer) {
    unscale_parameters(std::addressof(optimizer), parameters_of(optimizer));
  }

  /// Calls `optimizer.step()` unless a gradient is not finite. Once an optimizer between updates.
  /// Waits for the device, because the host must know whether to call it; nothing else waits but
  /// get_scale, state_dict and load_state_dict.
  template <SteppableOptimizer Optimizer>
  StepOutcome step(Optimizer& optimizer) {
    const StepOutcome outcome = decide(std::addressof(optimizer), parameters_of(optimizer));
    if (outcome == StepOutcome::applied) {
      optimizer.step();
    }
    return outcome;
  }

  /// Backs off if a gradient of any optimizer was not finite since the last update, else counts
  /// towards growth. Throws InvalidArgument when no optimizer was unscaled or stepped.
  void update();

  /// Sets the scale instead, and keeps the count. Throws InvalidArgument for one that is not a
  /// finite normal FP32 number above 0.
  void update(float new_scale);

  /// Forgets the step under way without a look at its gradients: for a loop that leaves it out.
  void discard();

  /// The scale; 1 when disabled. Waits for the device.
  float get_scale() const;

  bool is_enabled() const { return options_.enabled; }
  const GradScalerOptions& options() const { return options_; }

  /// The rule and the scale on its device, which can be looked at without a wait.
  const LossScaler& loss_scaler() const { return scaler_; }

  /// torch's keys, as scalars: scale, growth_factor, backoff_factor, growth_interval,
  /// _growth_tracker; empty when disabled. InvalidArgument between `unscale_` or `step` and
  /// `update`: whether to back off would be lost.
  tensor::StateDict state_dict() const;

  /// Takes scale, count and options, as in torch, and forgets a step under way; does nothing when
  /// disabled. Throws Corruption, and changes nothing, for a state that no scaler can have.
  void load_state_dict(const tensor::StateDict& state);

 private:
  struct Iteration;  // what happened since the last update

  template <typename Optimizer>
  static std::vector<at::Tensor> parameters_of(Optimizer& optimizer) {
    std::vector<at::Tensor> result;
    // torch::optim's `parameters()` are those of its first group.
    if constexpr (requires { optimizer.param_groups(); }) {
      for (auto& group : optimizer.param_groups()) {
        result.insert(result.end(), group.params().begin(), group.params().end());
      }
    } else {
      for (const at::Tensor& parameter : optimizer.parameters()) {
        result.push_back(parameter);
      }
    }
    return result;
  }

  Iteration& iteration() const;  // throws InvalidArgument when this was moved from
  void unscale_parameters(const void* optimizer, at::TensorList parameters);
  StepOutcome decide(const void* optimizer, at::TensorList parameters);
  void require_scalable(const at::Tensor& gradient, size_t parameter) const;

  GradScalerOptions options_;
  LossScaler scaler_;
  std::unique_ptr<Iteration> iteration_;
};

}  // namespace mantissa::amp
