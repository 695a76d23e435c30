#include "mantissa/optim/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <set>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "mantissa/base/error.h"
#include "mantissa/base/nearest.h"
#include "mantissa/ops/adamw.h"
#include "mantissa/ops/block_quantization.h"
#include "mantissa/ops/gradient_pass.h"
#include "mantissa/ops/update_checks.h"
#include "mantissa/optim/parameter_groups.h"
#include "mantissa/tensor/dtype.h"

namespace mantissa::optim {

struct Optimizer::Slot {
  std::string name;
  ParameterSettings settings;
  at::Tensor parameter;
  at::Tensor master;       // shares the parameter's memory when that is FP32; or undefined
  at::Tensor rest;         // Masters::split and compensated
  at::Tensor lost;         // Masters::none: of the last step
  uint64_t number;         // of the parameter, for its stream of random numbers
  at::Tensor accumulator;  // defined while microbatches add up
  ops::Moment exp_avg;     // adamw, adam
  ops::Moment exp_avg_sq;  // adamw, adam
  at::Tensor step;         // adamw, adam: updates of this parameter
  ops::Moment momentum;    // sgd, unless momentum is 0

  bool is_16bit() const { return tensor::is_16bit(parameter.scalar_type()); }

  at::Tensor gradient() const {
    if (!accumulator.defined()) {
      return parameter.grad();
    }
    MANTISSA_CHECK(!parameter.grad().defined(), InvalidArgument, "optimizer: parameter \"", name,
                   "\" has a gradient that was not accumulated; call accumulate_() after each "
                   "backward");
    return accumulator;
  }

  void accumulate(double factor) {
    at::Tensor gradient = parameter.grad();
    if (gradient.layout() != at::kStrided) {
      gradient = gradient.to(at::kFloat).to_dense();  // duplicates are added in FP32
    }
    if (!accumulator.defined()) {
      accumulator = at::zeros_like(parameter.detach(), at::kFloat);
    }
    accumulator.add_(gradient, factor);
    parameter.mutable_grad() = at::Tensor();
  }

  ops::WeightUpdate weight() const {
    ops::WeightUpdate update;
    update.master = master;
    update.model = is_16bit() ? parameter.detach() : at::Tensor();
    update.rest = rest;
    return update;
  }

  // Streams of random numbers: one for each use, parameter and step.
  enum class Use : uint64_t { weight, first_moment, second_moment };

  uint64_t stream(Use use, int64_t steps) const {
    return (static_cast<uint64_t>(use) << 62) + (number << 40) + static_cast<uint64_t>(steps);
  }

  ops::WeightUpdate update(const OptimizerOptions& options, double lr, int64_t steps) const {
    ops::WeightUpdate update = weight();
    update.gradient = gradient();
    update.lr = lr * settings.lr_scale;
    update.weight_decay = settings.weight_decay;
    if (is_16bit() && options.masters == Masters::stochastic) {
      update.rounding = numerics::Rounding::stochastic;
      update.seed = options.seed;
      update.stream = stream(Use::weight, steps);
    }
    update.lost = lost;
    return update;
  }

  ops::Moment moment(const ops::Moment& stored, Use use, const OptimizerOptions& options,
                     int64_t steps) const {
    ops::Moment moment = stored;
    moment.seed = options.seed;
    moment.stream = stream(use, steps);
    return moment;
  }

  // The tensors of a checkpoint, by the first part of their names.
  std::vector<std::pair<std::string, at::Tensor>> state() const {
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
};

namespace {

constexpr std::array kKinds = {Kind::adamw, Kind::adam, Kind::sgd};
constexpr std::array kMasters = {Masters::fp32, Masters::split, Masters::compensated,
                                 Masters::stochastic, Masters::none};
constexpr std::array kMomentFormats = {MomentFormat::fp32, MomentFormat::bf16,
                                       MomentFormat::blockwise8};

void check_parameters(const tensor::ParameterList& parameters) {
  std::set<std::string> names;
  std::set<const void*> tensors;
  for (const auto& [name, value] : parameters) {
    MANTISSA_CHECK(names.insert(name).second, InvalidArgument, "optimizer: parameter \"", name,
                   "\" is listed twice; list it once");
    MANTISSA_CHECK(value.defined() &&
                       (value.scalar_type() == at::kFloat || tensor::is_16bit(value.scalar_type())),
                   InvalidArgument, "optimizer: parameter \"", name, "\" is ",
                   value.defined() ? c10::toString(value.scalar_type()) : "undefined",
                   "; valid: Float BFloat16 Half");
    MANTISSA_CHECK(value.device().is_cpu(), Unsupported, "optimizer: parameter \"", name,
                   "\" is on ", value.device(), "; move it to cpu");
    MANTISSA_CHECK(value.is_non_overlapping_and_dense(), InvalidArgument, "optimizer: parameter \"",
                   name, "\" has strides ", value.strides(),
                   ", which overlap or leave gaps; make it contiguous");
    MANTISSA_CHECK(tensors.insert(value.unsafeGetTensorImpl()).second, InvalidArgument,
                   "optimizer: parameter \"", name,
                   "\" is a tensor that an earlier name has too; list a tied weight once");
  }
}

int64_t bytes_of(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return 0;
  }
  if (tensor.layout() == at::kSparse) {
    return bytes_of(tensor._values()) + bytes_of(tensor._indices());
  }
  return static_cast<int64_t>(tensor.nbytes());
}

int64_t bytes_of(const ops::Moment& moment) {
  return bytes_of(moment.values) + bytes_of(moment.scales);
}

// `a, b and 3 more`
std::string enumerate(const std::vector<std::string>& names) {
  constexpr size_t kShown = 3;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) {
    text += (i == 0 ? "\"" : ", \"") + names[i] + "\"";
  }
  return names.size() > kShown ? concat(text, " and ", names.size() - kShown, " more") : text;
}

void check_names(const std::set<std::string>& expected, const std::set<std::string>& found) {
  std::vector<std::string> missing;
  std::vector<std::string> additional;
  std::set_difference(expected.begin(), expected.end(), found.begin(), found.end(),
                      std::back_inserter(missing));
  std::set_difference(found.begin(), found.end(), expected.begin(), expected.end(),
                      std::back_inserter(additional));
  MANTISSA_CHECK(missing.empty(), Corruption, "optimizer: the state lacks ", enumerate(missing),
                 "; resume with the model and the settings that were saved");
  MANTISSA_CHECK(additional.empty(), Corruption, "optimizer: the state also has ",
                 enumerate(additional), "; resume with the model and the settings that were saved");
}

void check_entry(const std::string& name, const at::Tensor& saved, const at::Tensor& own) {
  MANTISSA_CHECK(saved.scalar_type() == own.scalar_type() && saved.sizes() == own.sizes(),
                 Corruption, "optimizer: \"", name, "\" in the state is ", saved.scalar_type(),
                 " of shape ", saved.sizes(), ", here it is ", own.scalar_type(), " of shape ",
                 own.sizes(), "; resume with the model and the settings that were saved");
}

}  // namespace

std::string_view to_string(Kind kind) {
  switch (kind) {
    case Kind::adamw:
      return "adamw";
    case Kind::adam:
      return "adam";
    case Kind::sgd:
      return "sgd";
  }
  MANTISSA_ASSERT(false);
}

Kind parse_kind(std::string_view name) {
  return parse_enumerator(name, kKinds, "optimizer: unknown kind");
}

std::string_view to_string(Masters masters) {
  switch (masters) {
    case Masters::fp32:
      return "fp32";
    case Masters::split:
      return "split";
    case Masters::compensated:
      return "compensated";
    case Masters::stochastic:
      return "stochastic";
    case Masters::none:
      return "none";
  }
  MANTISSA_ASSERT(false);
}

Masters parse_masters(std::string_view name) {
  return parse_enumerator(name, kMasters, "optimizer: unknown masters");
}

MomentFormat parse_moment_format(std::string_view name) {
  return parse_enumerator(name, kMomentFormats, "optimizer: unknown format of moments");
}

Optimizer::Optimizer(const tensor::ParameterList& parameters, const OptimizerOptions& options)
    : options_(options) {
  const at::NoGradGuard no_grad;
  validate(options);
  check_parameters(parameters);
  std::vector<std::string> names;
  for (const tensor::Parameter& parameter : parameters) {
    names.push_back(parameter.name);
  }
  const std::vector<ParameterSettings> settings = settings_of(names, options);
  for (size_t i = 0; i < parameters.size(); ++i) {
    Slot slot;
    slot.name = parameters[i].name;
    slot.settings = settings[i];
    slot.parameter = parameters[i].value;
    slot.number = i;
    keep_weights(slot);
    const auto zeros = [&](ops::CodeMap map) {
      return ops::zero_moment(slot.parameter, options.moments, map);
    };
    if (options.kind != Kind::sgd) {
      slot.exp_avg = zeros(ops::CodeMap::with_sign);
      slot.exp_avg_sq = zeros(ops::CodeMap::nonnegative);
      slot.step = at::zeros({}, at::kLong);
    } else if (options.momentum != 0) {
      slot.momentum = zeros(ops::CodeMap::with_sign);
    }
    slots_.push_back(std::move(slot));
  }
}

Optimizer::Optimizer(const tensor::ParameterList& parameters)
    : Optimizer(parameters, OptimizerOptions()) {}

void Optimizer::keep_weights(Slot& slot) const {
  const at::Tensor weight = slot.parameter.detach();
  const Masters masters = slot.is_16bit() ? options_.masters : Masters::fp32;
  switch (masters) {
    case Masters::fp32:
      slot.master = weight.to(at::kFloat);
      return;
    case Masters::split:
      MANTISSA_CHECK(weight.scalar_type() == at::kBFloat16, InvalidArgument,
                     "optimizer: parameter \"", slot.name, "\" is ", weight.scalar_type(),
                     ", which is no half of an FP32 number; split masters need BFloat16, use fp32 "
                     "or compensated");
      slot.rest = at::zeros_like(weight, at::kShort);
      return;
    case Masters::compensated:
      slot.rest = at::zeros_like(weight);
      return;
    case Masters::stochastic:
      return;
    case Masters::none:
      slot.lost = at::zeros({}, at::kLong);
      return;
  }
}

Optimizer::~Optimizer() = default;
Optimizer::Optimizer(Optimizer&&) noexcept = default;
Optimizer& Optimizer::operator=(Optimizer&&) noexcept = default;

void Optimizer::accumulate_() {
  const at::NoGradGuard no_grad;
  MANTISSA_CHECK(
      !sums_unscaled_, InvalidArgument,
      "optimizer: accumulate_() after accumulate_(scale); in one step call the one or the "
      "other");
  for (Slot& slot : slots_) {
    if (slot.is_16bit() && slot.parameter.grad().defined()) {
      slot.accumulate(1);
    }
  }
}

GradientReport Optimizer::accumulate_(const at::Tensor& scale) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients;
  for (const Slot& slot : slots_) {
    MANTISSA_CHECK(sums_unscaled_ || !slot.accumulator.defined(), InvalidArgument,
                   "optimizer: accumulate_(scale) after accumulate_(); in one step call the one or "
                   "the other");
    if (slot.parameter.grad().defined()) {
      gradients.push_back(slot.parameter.grad());
    }
  }
  const ops::GradientPass pass = ops::gradient_pass(gradients, scale);
  const float inverse = ops::inverse_of_scale(scale, "accumulate_");
  // What cannot be unscaled must not look like a gradient of 0.
  const bool usable = std::isfinite(inverse) && inverse != 0;
  for (Slot& slot : slots_) {
    if (slot.parameter.grad().defined()) {
      slot.accumulate(usable ? inverse : std::numeric_limits<double>::quiet_NaN());
    }
  }
  sums_unscaled_ = true;
  return {pass.found_inf, pass.norm};
}

void Optimizer::check_scale(const at::Tensor& scale) const {
  if (!sums_unscaled_) {
    return;
  }
  MANTISSA_CHECK(!scale.defined(), InvalidArgument,
                 "optimizer: a scale for gradients that accumulate_(scale) has unscaled; leave it "
                 "out");
  for (const Slot& slot : slots_) {
    MANTISSA_CHECK(!slot.parameter.grad().defined(), InvalidArgument, "optimizer: parameter \"",
                   slot.name,
                   "\" has a gradient that was not accumulated; call accumulate_(scale) after each "
                   "backward");
  }
}

GradientReport Optimizer::read_gradients(const at::Tensor& scale) const {
  const at::NoGradGuard no_grad;
  check_scale(scale);
  std::vector<at::Tensor> gradients;
  for (const Slot& slot : slots_) {
    if (const at::Tensor gradient = slot.gradient(); gradient.defined()) {
      gradients.push_back(gradient);
    }
  }
  const ops::GradientPass pass = ops::gradient_pass(gradients, scale);
  return {pass.found_inf, pass.norm};
}

StepOutcome Optimizer::step(const StepOptions& options) {
  const at::NoGradGuard no_grad;
  MANTISSA_CHECK(std::isfinite(options.lr) && options.lr >= 0, InvalidArgument, "optimizer: lr is ",
                 options.lr, "; it must be finite and not negative");
  check_scale(options.scale);
  std::vector<const Slot*> ready;
  for (const Slot& slot : slots_) {
    if (slot.gradient().defined()) {
      ready.push_back(&slot);
    }
  }
  const StepOutcome outcome = ready.empty() ? StepOutcome::nothing_to_do : update(ready, options);
  steps_ += outcome == StepOutcome::applied ? 1 : 0;
  for (Slot& slot : slots_) {
    slot.accumulator = at::Tensor();
  }
  sums_unscaled_ = false;
  return outcome;
}

StepOutcome Optimizer::update(const std::vector<const Slot*>& slots, const StepOptions& options) {
  const ops::GradientUse use = {options.scale, options.clip_factor, options.found_inf};
  for (const Slot* slot : slots) {
    if (slot->lost.defined()) {
      slot->lost.zero_();
    }
  }
  bool applied = false;
  if (options_.kind != Kind::sgd) {
    const WeightDecay decay =
        options_.kind == Kind::adam ? WeightDecay::l2 : WeightDecay::decoupled;
    std::vector<ops::AdamwParameter> parameters;
    parameters.reserve(slots.size());
    for (const Slot* slot : slots) {
      parameters.push_back(
          {slot->update(options_, options.lr, steps_),
           slot->moment(slot->exp_avg, Slot::Use::first_moment, options_, steps_),
           slot->moment(slot->exp_avg_sq, Slot::Use::second_moment, options_, steps_), slot->step});
    }
    applied = ops::adamw_(parameters, {options_.beta1, options_.beta2, options_.eps, decay}, use);
  } else {
    std::vector<ops::SgdParameter> parameters;
    parameters.reserve(slots.size());
    for (const Slot* slot : slots) {
      parameters.push_back(
          {slot->update(options_, options.lr, steps_),
           slot->moment(slot->momentum, Slot::Use::first_moment, options_, steps_)});
    }
    applied =
        ops::sgd_(parameters, {options_.momentum, options_.momentum_kind, options_.decay}, use);
  }
  return applied ? StepOutcome::applied : StepOutcome::skipped;
}

void Optimizer::zero_grad() {
  for (Slot& slot : slots_) {
    slot.parameter.mutable_grad() = at::Tensor();
    slot.accumulator = at::Tensor();
  }
  sums_unscaled_ = false;
}

tensor::StateDict Optimizer::state_dict() const {
  tensor::StateDict state;
  state.set("kind", std::string(to_string(options_.kind)));
  state.set("masters", std::string(to_string(options_.masters)));
  state.set("moments", std::string(to_string(options_.moments)));
  state.set("steps", steps_);
  for (const Slot& slot : slots_) {
    MANTISSA_CHECK(!slot.accumulator.defined(), InvalidArgument,
                   "optimizer: state_dict was called while gradients accumulate; call it after "
                   "step()");
    for (const auto& [name, tensor] : slot.state()) {
      state.set(name, tensor);
    }
  }
  return state;
}

void Optimizer::load_state_dict(const tensor::StateDict& state) {
  const at::NoGradGuard no_grad;
  MANTISSA_CHECK(state.text("kind") == to_string(options_.kind), Corruption,
                 "optimizer: the state is of \"", state.text("kind"), "\", this optimizer is \"",
                 to_string(options_.kind), "\"; resume with the kind that was saved");
  MANTISSA_CHECK(state.text("masters") == to_string(options_.masters), Corruption,
                 "optimizer: the state has masters \"", state.text("masters"),
                 "\", this optimizer \"", to_string(options_.masters),
                 "\"; resume with the setting that was saved");
  MANTISSA_CHECK(state.text("moments") == to_string(options_.moments), Corruption,
                 "optimizer: the state has moments \"", state.text("moments"),
                 "\", this optimizer \"", to_string(options_.moments),
                 "\"; resume with the setting that was saved");
  const int64_t steps = state.integer("steps");
  MANTISSA_CHECK(steps >= 0, Corruption, "optimizer: steps in the state is ", steps,
                 "; the checkpoint is damaged");
  std::set<std::string> expected;
  for (const Slot& slot : slots_) {
    for (const auto& [name, tensor] : slot.state()) {
      expected.insert(name);
    }
  }
  std::set<std::string> found;
  for (const auto& [name, tensor] : state.tensors()) {
    found.insert(name);
  }
  check_names(expected, found);
  for (const Slot& slot : slots_) {
    for (const auto& [name, tensor] : slot.state()) {
      check_entry(name, state.tensor(name), tensor);
    }
  }
  for (Slot& slot : slots_) {
    for (const auto& [name, tensor] : slot.state()) {
      state.copy_to(name, tensor);
    }
    if (slot.is_16bit() && slot.master.defined()) {
      slot.parameter.detach().copy_(slot.master);
    }
  }
  steps_ = steps;
}

at::Tensor Optimizer::master(const std::string& name) const {
  std::vector<std::string> names;
  for (const Slot& slot : slots_) {
    if (slot.name == name) {
      return slot.master.defined() ? slot.master : ops::weights_of(slot.weight());
    }
    names.push_back(slot.name);
  }
  throw InvalidArgument(concat("optimizer: no parameter \"", name, "\"", suggestion(name, names)));
}

std::vector<MasterWeight> Optimizer::master_weights() const {
  std::vector<MasterWeight> result;
  result.reserve(slots_.size());
  for (const Slot& slot : slots_) {
    result.push_back({slot.name, slot.parameter, slot.weight()});
  }
  return result;
}

std::vector<LostUpdates> Optimizer::lost_updates(double share) const {
  std::vector<LostUpdates> result;
  for (const Slot& slot : slots_) {
    if (slot.lost.defined() && slot.parameter.numel() > 0) {
      const double lost = static_cast<double>(slot.lost.item<int64_t>()) /
                          static_cast<double>(slot.parameter.numel());
      if (lost > share) {
        result.push_back({slot.name, lost});
      }
    }
  }
  return result;
}

OptimizerBytes Optimizer::bytes() const {
  OptimizerBytes bytes;
  for (const Slot& slot : slots_) {
    bytes.weights += bytes_of(slot.parameter);
    bytes.masters += slot.is_16bit() ? bytes_of(slot.master) + bytes_of(slot.rest) : 0;
    bytes.moments += bytes_of(slot.exp_avg) + bytes_of(slot.exp_avg_sq) + bytes_of(slot.momentum);
    bytes.gradients += bytes_of(slot.parameter.grad());
    bytes.accumulators += bytes_of(slot.accumulator);
  }
  return bytes;
}

}  // namespace mantissa::optim
