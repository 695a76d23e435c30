#include "mantissa/optim/ema.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros.h>

#include "mantissa/base/error.h"
#include "mantissa/base/nearest.h"
#include "mantissa/ops/ema.h"
#include "mantissa/tensor/wide_dtype.h"

namespace mantissa::optim {
namespace {

constexpr const char* kShadow = "shadow.";

}  // namespace

double decay_at(const EmaOptions& options, int64_t n) {
  const auto count = static_cast<double>(n);
  return options.warmup ? std::min(options.decay, (1 + count) / (10 + count)) : options.decay;
}

at::Tensor decay_at(const EmaOptions& options, const at::Tensor& n) {
  const at::Tensor count = n.to(tensor::wide_dtype(n.device()));
  if (!options.warmup) {
    return at::full_like(count, options.decay);
  }
  return count.add(1).div(count.add(10)).clamp_max(options.decay);
}

Ema::Ema(const Optimizer& optimizer, const EmaOptions& options)
    : options_(options),
      updates_(at::zeros({}, at::TensorOptions(at::kLong).device(optimizer.device()))) {
  MANTISSA_CHECK(options.decay > 0 && options.decay < 1, InvalidArgument, "ema: decay is ",
                 options.decay, "; valid: above 0 and below 1");
  for (const MasterWeight& master : optimizer.master_weights()) {
    averages_.push_back({master.name, master.parameter, ops::weights_of(master.weight)});
  }
}

void Ema::update(const Optimizer& optimizer, const PendingOutcome& outcome) {
  if (outcome.is_known() && outcome.read() != StepOutcome::applied) {
    return;
  }
  std::vector<ops::EmaParameter> parameters;
  for (const MasterWeight& master : optimizer.master_weights()) {
    const size_t i = parameters.size();
    MANTISSA_CHECK(i < averages_.size() && averages_[i].parameter.is_same(master.parameter),
                   InvalidArgument, "ema: the optimizer has a parameter \"", master.name,
                   "\" that is not averaged; pass the optimizer it was made with");
    parameters.push_back({master.weight, averages_[i].shadow});
  }
  if (optimizer.is_fused() && outcome.is_known()) {
    ops::ema_(parameters, decay_at(options_, updates()));
    updates_.add_(1);
    return;
  }
  const at::Tensor rate = decay_at(options_, updates_).neg().add(1).to(at::kFloat);
  if (outcome.is_known()) {
    ops::ema_composed_(parameters, rate);
    updates_.add_(1);
  } else {
    ops::ema_composed_(parameters, rate, outcome.applied().logical_not());
    updates_.add_(outcome.applied());
  }
}

const at::Tensor& Ema::shadow(const std::string& name) const {
  std::vector<std::string> names;
  for (const Average& average : averages_) {
    if (average.name == name) {
      return average.shadow;
    }
    names.push_back(average.name);
  }
  throw InvalidArgument(concat("ema: no parameter \"", name, "\"", suggestion(name, names)));
}

tensor::StateDict Ema::state_dict() const {
  tensor::StateDict state;
  state.set("updates", updates());
  for (const Average& average : averages_) {
    state.set(kShadow + average.name, average.shadow);
  }
  return state;
}

void Ema::load_state_dict(const tensor::StateDict& state) {
  const int64_t updates = state.integer("updates");
  MANTISSA_CHECK(updates >= 0, Corruption, "ema: updates in the state is ", updates,
                 "; the checkpoint is damaged");
  MANTISSA_CHECK(state.tensors().size() == averages_.size(), Corruption, "ema: the state has ",
                 state.tensors().size(), " parameters, the model has ", averages_.size(),
                 "; resume with the model that was saved");
  for (const Average& average : averages_) {
    const at::Tensor& saved = state.tensor(kShadow + average.name);
    MANTISSA_CHECK(saved.scalar_type() == at::kFloat && saved.sizes() == average.shadow.sizes(),
                   Corruption, "ema: \"", average.name, "\" in the state is ", saved.scalar_type(),
                   " of shape ", saved.sizes(), ", here it is Float of shape ",
                   average.shadow.sizes(), "; resume with the model that was saved");
  }
  for (const Average& average : averages_) {
    state.copy_to(kShadow + average.name, average.shadow);
  }
  updates_.fill_(updates);
}

int64_t Ema::bytes() const {
  int64_t bytes = 0;
  for (const Average& average : averages_) {
    bytes += static_cast<int64_t>(average.shadow.nbytes());
  }
  return bytes;
}

EmaGuard::EmaGuard(const Ema& ema) {
  const at::NoGradGuard no_grad;
  for (const Ema::Average& average : ema.averages_) {
    parameters_.push_back(average.parameter.detach());
    saved_.push_back(average.parameter.detach().clone());
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].copy_(ema.averages_[i].shadow);
  }
}

EmaGuard::~EmaGuard() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].copy_(saved_[i]);
  }
}

}  // namespace mantissa::optim
