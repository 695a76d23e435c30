#include "mantissa/optim/parameter_slot.h"

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "mantissa/base/error.h"
#include "mantissa/tensor/dtype.h"

namespace mantissa::optim {

ParameterSlot::ParameterSlot(const tensor::Parameter& named, uint64_t position,
                             const ParameterSettings& own_settings, const OptimizerOptions& options,
                             bool fused)
    : name(named.name), settings(own_settings), number(position), parameter(named.value) {
  keep_weights(is_16bit() ? options.masters : Masters::fp32, fused);
  const auto zeros = [&](ops::CodeMap map) {
    return ops::zero_moment(parameter, options.moments, map);
  };
  if (options.kind != Kind::sgd) {
    exp_avg = zeros(ops::CodeMap::with_sign);
    exp_avg_sq = zeros(ops::CodeMap::nonnegative);
    step = at::zeros({}, parameter.options().dtype(at::kLong));
  } else if (options.momentum != 0) {
    momentum = zeros(ops::CodeMap::with_sign);
  }
}

void ParameterSlot::keep_weights(Masters masters, bool fused) {
  const at::Tensor weight = parameter.detach();
  switch (masters) {
    case Masters::fp32:
      master = weight.to(at::kFloat);
      return;
    case Masters::split:
      MANTISSA_CHECK(weight.scalar_type() == at::kBFloat16, InvalidArgument,
                     "optimizer: parameter \"", name, "\" is ", weight.scalar_type(),
                     ", which is no half of an FP32 number; split masters need BFloat16, use fp32 "
                     "or compensated");
      rest = at::zeros_like(weight, at::kShort);
      return;
    case Masters::compensated:
      rest = at::zeros_like(weight);
      return;
    case Masters::stochastic:
      MANTISSA_CHECK(fused, Unsupported,
                     "optimizer: masters is stochastic, which only the fused passes do; use "
                     "fp32, split, compensated or none");
      return;
    case Masters::none:
      lost = at::zeros({}, weight.options().dtype(at::kLong));
      return;
  }
}

bool ParameterSlot::is_16bit() const { return tensor::is_16bit(parameter.scalar_type()); }

at::Tensor ParameterSlot::gradient() const {
  if (!accumulator.defined()) {
    return parameter.grad();
  }
  MANTISSA_CHECK(!parameter.grad().defined(), InvalidArgument, "optimizer: parameter \"", name,
                 "\" has a gradient that was not accumulated; call accumulate_() after each "
                 "backward");
  return accumulator;
}

void ParameterSlot::accumulate(const at::Tensor& factor) {
  at::Tensor gradient = parameter.grad();
  if (gradient.layout() != at::kStrided) {
    gradient = gradient.to(at::kFloat).to_dense();  // duplicates are added in FP32
  }
  if (!accumulator.defined()) {
    accumulator = at::zeros_like(parameter.detach(), at::kFloat);
  }
  accumulator.add_(factor.defined() ? gradient.to(at::kFloat).mul(factor) : gradient);
  parameter.mutable_grad() = at::Tensor();
}

ops::WeightUpdate ParameterSlot::weight() const {
  ops::WeightUpdate update;
  update.master = master;
  update.model = is_16bit() ? parameter.detach() : at::Tensor();
  update.rest = rest;
  return update;
}

void ParameterSlot::forget_lost() const {
  if (lost.defined()) {
    lost.zero_();
  }
}

uint64_t ParameterSlot::stream(Use use, int64_t steps) const {
  return (static_cast<uint64_t>(use) << 62) + (number << 40) + static_cast<uint64_t>(steps);
}

ops::WeightUpdate ParameterSlot::update(const OptimizerOptions& options, double lr,
                                        const at::Tensor& lr_factor, int64_t steps) const {
  ops::WeightUpdate update = weight();
  update.gradient = gradient();
  update.lr = lr * settings.lr_scale;
  update.lr_factor = lr_factor;
  update.weight_decay = settings.weight_decay;
  if (is_16bit() && options.masters == Masters::stochastic) {
    update.rounding = numerics::Rounding::stochastic;
    update.seed = options.seed;
    update.stream = stream(Use::weight, steps);
  }
  update.lost = lost;
  return update;
}

ops::Moment ParameterSlot::moment(const ops::Moment& stored, Use use,
                                  const OptimizerOptions& options, int64_t steps) const {
  ops::Moment moment = stored;
  moment.seed = options.seed;
  moment.stream = stream(use, steps);
  return moment;
}

std::vector<std::pair<std::string, at::Tensor>> ParameterSlot::state() const {
  std::vector<std::pair<std::string, at::Tensor>> result;
  if (is_16bit() && master.defined()) {
    result.emplace_back("master." + name, master);
  }
  for (const auto& [part, tensor] : {std::pair{"rest.", rest},
                                     {"exp_avg.", exp_avg.values},
                                     {"exp_avg_scales.", exp_avg.scales},
                                     {"exp_avg_sq.", exp_avg_sq.values},
                                     {"exp_avg_sq_scales.", exp_avg_sq.scales},
                                     {"step.", step},
                                     {"momentum.", momentum.values},
                                     {"momentum_scales.", momentum.scales}}) {
    if (tensor.defined()) {
      result.emplace_back(part + name, tensor);
    }
  }
  return result;
}

}  // namespace mantissa::optim
