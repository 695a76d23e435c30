#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mantissa/ops/moment.h"
#include "mantissa/ops/weight_update.h"
#include "mantissa/optim/optimizer.h"
#include "mantissa/optim/parameter_groups.h"

namespace mantissa::optim {

/// A parameter and all that an optimizer keeps of it.
struct ParameterSlot {
  /// Of the parameter at `position` of the list. Throws InvalidArgument for masters that its dtype
  /// cannot have, and Unsupported for those that compositions do not know, unless `fused`.
  ParameterSlot(const tensor::Parameter& named, uint64_t position,
                const ParameterSettings& own_settings, const OptimizerOptions& options, bool fused);

  bool is_16bit() const;

  /// The sum of the microbatches, or .grad; undefined without either.
  at::Tensor gradient() const;

  /// Adds .grad * `factor`, 0-d FP32 or undefined for 1, to the accumulator and undefines it.
  void accumulate(const at::Tensor& factor = {});

  /// Where the FP32 weight is.
  ops::WeightUpdate weight() const;

  /// The update of step number `steps`; its rate is lr * lr_factor.
  ops::WeightUpdate update(const OptimizerOptions& options, double lr, const at::Tensor& lr_factor,
                           int64_t steps) const;

  /// Lost updates are those of one step.
  void forget_lost() const;

  /// Streams of random numbers: one for each use, parameter and step.
  enum class Use : uint64_t { weight, first_moment, second_moment };

  ops::Moment moment(const ops::Moment& stored, Use use, const OptimizerOptions& options,
                     int64_t steps) const;

  /// The tensors of a checkpoint, by the first part of their names.
  std::vector<std::pair<std::string, at::Tensor>> state() const;

  std::string name;
  ParameterSettings settings;
  uint64_t number = 0;  // for its stream of random numbers
  at::Tensor parameter;
  at::Tensor master;       // shares the parameter's memory when that is FP32; or undefined
  at::Tensor rest;         // Masters::split and compensated
  at::Tensor lost;         // Masters::none: of the last step
  at::Tensor accumulator;  // defined while microbatches add up
  ops::Moment exp_avg;     // adamw, adam
  ops::Moment exp_avg_sq;  // adamw, adam
  at::Tensor step;         // adamw, adam: updates of this parameter
  ops::Moment momentum;    // sgd, unless momentum is 0

 private:
  void keep_weights(Masters masters, bool fused);
  uint64_t stream(Use use, int64_t steps) const;
};

}  // namespace mantissa::optim
