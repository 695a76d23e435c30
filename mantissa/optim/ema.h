#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"
#include "mantissa/optim/optimizer.h"
#include "mantissa/tensor/state_dict.h"

namespace mantissa::optim {

struct EmaOptions {
  double decay = 0.999;  // above 0 and below 1

  // Update n, from 0 on, decays by min(decay, (1 + n) / (10 + n)), so that the first weights are
  // soon forgotten; as `num_updates` of tf.train.ExponentialMovingAverage in TensorFlow.
  bool warmup = false;
};

/// The decay of update `n`.
MANTISSA_API double decay_at(const EmaOptions& options, int64_t n);

/// The same for a 0-d int64 tensor, 0-d in the widest dtype of its device: the same number in FP64.
/// Does not wait for the device.
MANTISSA_API at::Tensor decay_at(const EmaOptions& options, const at::Tensor& n);

/// An exponential moving average of the weights in training, with which a model often predicts
/// better (Polyak and Juditsky, 1992): a shadow in FP32 of the FP32 weights that the optimizer
/// keeps, with each kind of Masters. The first shadow is the weights.
///
///     optim::Ema ema(optimizer, {.decay = 0.999});
///     ...
///     ema.update(optimizer, optimizer.step(options));  // a skipped step does not count
///     ...
///     { const optim::EmaGuard averaged(ema);  validate(model); }
///
/// In 16 bits it would stand still: of a BF16 shadow at 1 with decay 0.999 and weight 0 each step
/// takes 0.001, less than half of its rounding step below 1, which is 2^-9. In FP32 that happens
/// when shadow and weight differ by less than 2^-24 / (1 - decay) of the shadow: with 0.9999 by
/// 0.06 %.
///
/// Costs 4 bytes a parameter. Of one thread, on the device of the parameters.
class MANTISSA_API Ema {
 public:
  /// InvalidArgument for a decay that is not above 0 and below 1.
  Ema(const Optimizer& optimizer, const EmaOptions& options);

  Ema(Ema&&) = default;  // a copy would share its tensors
  Ema& operator=(Ema&&) = default;

  /// Takes the weights in when `outcome` is applied: a StepOutcome, or one that is still pending,
  /// which the device then selects by. Waits for nothing. InvalidArgument for an optimizer with
  /// other parameters.
  void update(const Optimizer& optimizer, const PendingOutcome& outcome);

  /// Waits for the device.
  int64_t updates() const { return updates_.item<int64_t>(); }

  /// FP32. InvalidArgument for an unknown name.
  const at::Tensor& shadow(const std::string& name) const;

  /// Tensors are shared, not copied. Waits for the device.
  tensor::StateDict state_dict() const;

  /// Takes a state back bit for bit. One with other names, shapes or dtypes is refused with
  /// Corruption, and then nothing has changed.
  void load_state_dict(const tensor::StateDict& state);

  int64_t bytes() const;

 private:
  friend class EmaGuard;

  struct Average {
    std::string name;
    at::Tensor parameter;
    at::Tensor shadow;
  };

  EmaOptions options_;
  std::vector<Average> averages_;
  at::Tensor updates_;  // 0-d int64
};

/// The average in the parameters, rounded to their dtypes, until the end of the scope; then they
/// are bit for bit what they were. Do not train within it. Holds a copy of the parameters.
class MANTISSA_API EmaGuard {
 public:
  explicit EmaGuard(const Ema& ema);
  ~EmaGuard();

  EmaGuard(const EmaGuard&) = delete;
  EmaGuard& operator=(const EmaGuard&) = delete;

 private:
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> saved_;
};

}  // namespace mantissa::optim
