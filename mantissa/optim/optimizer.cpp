#include "mantissa/optim/optimizer.h"

#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "mantissa/base/error.h"
#include "mantissa/base/nearest.h"
#include "mantissa/ops/adamw.h"
#include "mantissa/ops/device_kernels.h"
#include "mantissa/ops/gradient_pass.h"
#include "mantissa/optim/parameter_groups.h"
#include "mantissa/optim/parameter_slot.h"
#include "mantissa/tensor/dtype.h"

namespace mantissa::optim {
namespace {

constexpr std::array kKinds = {Kind::adamw, Kind::adam, Kind::sgd};
constexpr std::array kMasters = {Masters::fp32, Masters::split, Masters::compensated,
                                 Masters::stochastic, Masters::none};
constexpr std::array kMomentFormats = {MomentFormat::fp32, MomentFormat::bf16,
                                       MomentFormat::blockwise8};

// No byte is trained twice: each tensor has its own, though several may share a storage.
void require_apart(const tensor::ParameterList& parameters) {
  std::map<const char*, const tensor::Parameter*> by_begin;
  const auto begin = [](const at::Tensor& value) {
    return static_cast<const char*>(value.const_data_ptr());
  };
  for (const tensor::Parameter& parameter : parameters) {
    if (!parameter.value.has_storage() || parameter.value.nbytes() == 0 ||
        begin(parameter.value) == nullptr) {
      continue;
    }
    const auto [at, is_new] = by_begin.emplace(begin(parameter.value), &parameter);
    const auto require = [](const tensor::Parameter& a, const tensor::Parameter& b, bool apart) {
      MANTISSA_CHECK(apart, InvalidArgument, "optimizer: parameters \"", a.name, "\" and \"",
                     b.name, "\" overlap in memory; give each its own, or list one of them");
    };
    require(*at->second, parameter, is_new);
    const auto end = [&](const tensor::Parameter& p) { return begin(p.value) + p.value.nbytes(); };
    if (at != by_begin.begin()) {
      const tensor::Parameter& before = *std::prev(at)->second;
      require(before, parameter, end(before) <= begin(parameter.value));
    }
    if (std::next(at) != by_begin.end()) {
      const tensor::Parameter& after = *std::next(at)->second;
      require(after, parameter, end(parameter) <= begin(after.value));
    }
  }
}

void check_parameters(const tensor::ParameterList& parameters) {
  std::set<std::string> names;
  std::set<const void*> tensors;
  bool is_trained = false;
  for (const auto& [name, value] : parameters) {
    MANTISSA_CHECK(!name.empty(), InvalidArgument, "optimizer: parameter number ", names.size(),
                   " has an empty name; give it one");
    MANTISSA_CHECK(names.insert(name).second, InvalidArgument, "optimizer: parameter \"", name,
                   "\" is listed twice; list it once");
    MANTISSA_CHECK(value.defined() &&
                       (value.scalar_type() == at::kFloat || tensor::is_16bit(value.scalar_type())),
                   InvalidArgument, "optimizer: parameter \"", name, "\" is ",
                   value.defined() ? c10::toString(value.scalar_type()) : "undefined",
                   "; valid: Float BFloat16 Half");
    MANTISSA_CHECK(value.device() == parameters[0].value.device(), InvalidArgument,
                   "optimizer: parameter \"", name, "\" is on ", value.device(), " and \"",
                   parameters[0].name, "\" on ", parameters[0].value.device(),
                   "; give each device an optimizer of its own");
    MANTISSA_CHECK(value.is_leaf(), InvalidArgument, "optimizer: parameter \"", name,
                   "\" is the result of a recorded operation, which gets no gradient of its own; "
                   "pass a leaf, made with detach() and requires_grad_()");
    is_trained = is_trained || value.requires_grad();
    MANTISSA_CHECK(value.is_non_overlapping_and_dense(), InvalidArgument, "optimizer: parameter \"",
                   name, "\" has strides ", value.strides(),
                   ", which overlap or leave gaps; make it contiguous");
    MANTISSA_CHECK(tensors.insert(value.unsafeGetTensorImpl()).second, InvalidArgument,
                   "optimizer: parameter \"", name,
                   "\" is a tensor that an earlier name has too; list a tied weight once");
  }
  require_apart(parameters);
  MANTISSA_CHECK(is_trained, InvalidArgument, "optimizer: none of the ", parameters.size(),
                 " parameters requires a gradient; call requires_grad_() on those to train");
}

// How often a scale was written to.
int64_t version_of(const at::Tensor& scale) {
  return scale.defined() && !scale.is_inference() ? scale._version() : 0;
}

// Of a rate on the device only the device knows more.
void check_rate(const LearningRate& lr, at::Device device) {
  const at::Tensor& rate = lr.on_device();
  if (rate.defined()) {
    MANTISSA_CHECK(rate.dim() == 0 && rate.device() == device &&
                       (rate.scalar_type() == at::kFloat || rate.scalar_type() == at::kDouble),
                   InvalidArgument, "optimizer: lr is ", rate.scalar_type(), " of shape ",
                   rate.sizes(), " on ", rate.device(),
                   "; pass a number or a 0-d Float or Double tensor on ", device);
    return;
  }
  MANTISSA_CHECK(std::isfinite(lr.value()) && lr.value() >= 0, InvalidArgument, "optimizer: lr is ",
                 lr.value(), "; it must be finite and not negative");
}

struct Step {
  double lr;
  at::Tensor lr_factor;  // see WeightUpdate
  int64_t number;        // for random numbers; 0 where only the device counts steps
};

ops::AdamwOptions adamw(const OptimizerOptions& options) {
  return {options.beta1, options.beta2, options.eps,
          options.kind == Kind::adam ? WeightDecay::l2 : WeightDecay::decoupled};
}

ops::SgdOptions sgd(const OptimizerOptions& options) {
  return {options.momentum, options.momentum_kind, options.decay};
}

std::vector<ops::AdamwParameter> adamw_parameters(const std::vector<const ParameterSlot*>& slots,
                                                  const OptimizerOptions& options,
                                                  const Step& step) {
  using Use = ParameterSlot::Use;
  std::vector<ops::AdamwParameter> parameters;
  parameters.reserve(slots.size());
  for (const ParameterSlot* slot : slots) {
    parameters.push_back({slot->update(options, step.lr, step.lr_factor, step.number),
                          slot->moment(slot->exp_avg, Use::first_moment, options, step.number),
                          slot->moment(slot->exp_avg_sq, Use::second_moment, options, step.number),
                          slot->step});
  }
  return parameters;
}

std::vector<ops::SgdParameter> sgd_parameters(const std::vector<const ParameterSlot*>& slots,
                                              const OptimizerOptions& options, const Step& step) {
  using Use = ParameterSlot::Use;
  std::vector<ops::SgdParameter> parameters;
  parameters.reserve(slots.size());
  for (const ParameterSlot* slot : slots) {
    parameters.push_back({slot->update(options, step.lr, step.lr_factor, step.number),
                          slot->moment(slot->momentum, Use::first_moment, options, step.number)});
  }
  return parameters;
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
  device_ = parameters[0].value.device();
  fused_ = options.fused && device_.is_cpu();
  by_kernels_ = options.fused && !fused_ && ops::device_kernels(device_) != nullptr;
  MANTISSA_CHECK(fused_ || options.moments == MomentFormat::fp32 ||
                     (by_kernels_ && options.moments == MomentFormat::bf16),
                 Unsupported, "optimizer: moments is ", to_string(options.moments),
                 ", which only the fused passes do; use fp32", by_kernels_ ? " or bf16" : "");
  slots_.reserve(parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    slots_.emplace_back(parameters[i], i, settings[i], options, fused_ || by_kernels_);
  }
  steps_ = at::zeros({}, at::TensorOptions(at::kLong).device(device_));
}

Optimizer::Optimizer(const tensor::ParameterList& parameters)
    : Optimizer(parameters, OptimizerOptions()) {}

Optimizer::~Optimizer() = default;
Optimizer::Optimizer(Optimizer&&) noexcept = default;
Optimizer& Optimizer::operator=(Optimizer&&) noexcept = default;

void Optimizer::accumulate_() {
  require_whole();
  const at::NoGradGuard no_grad;
  MANTISSA_CHECK(
      !sums_unscaled_, InvalidArgument,
      "optimizer: accumulate_() after accumulate_(scale); in one step call the one or the "
      "other");
  for (ParameterSlot& slot : slots_) {
    if (slot.is_16bit() && slot.parameter.grad().defined()) {
      slot.accumulate();
    }
  }
}

GradientReport Optimizer::accumulate_(const at::Tensor& scale) {
  require_whole();
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients;
  for (const ParameterSlot& slot : slots_) {
    MANTISSA_CHECK(sums_unscaled_ || !slot.accumulator.defined(), InvalidArgument,
                   "optimizer: accumulate_(scale) after accumulate_(); in one step call the one or "
                   "the other");
    if (slot.parameter.grad().defined()) {
      gradients.push_back(slot.parameter.grad());
    }
  }
  const ops::GradientPass pass = read(gradients, scale);
  const at::Tensor factor = ops::unscale_factor(scale);
  for (ParameterSlot& slot : slots_) {
    if (slot.parameter.grad().defined()) {
      slot.accumulate(factor);
    }
  }
  sums_unscaled_ = true;
  return {pass.found_inf, pass.norm};
}

ops::GradientPass Optimizer::read(at::TensorList gradients, const at::Tensor& scale,
                                  std::vector<GradientStatistics>* statistics) const {
  if (fused_) {
    return ops::gradient_pass(gradients, scale, statistics);
  }
  return by_kernels_ && statistics == nullptr
             ? ops::gradient_pass_enqueued(gradients, scale, device_)
             : ops::gradient_pass_composed(gradients, scale, device_, {}, statistics);
}

// What read_gradients has divided by must be what the step divides by.
void Optimizer::require_scale_of_reading(const StepOptions& options) const {
  if (!reading_) {
    return;
  }
  const at::Tensor& read = reading_->scale;
  const at::Tensor& scale = options.scale;
  MANTISSA_CHECK(read.defined() == scale.defined(), InvalidArgument, "optimizer: ",
                 read.defined() ? "read_gradients had a scale and the step has none"
                                : "the step has a scale and read_gradients had none",
                 "; give both the same one");
  if (!read.defined()) {
    return;
  }
  MANTISSA_CHECK(!read.is_same(scale) || reading_->version == version_of(scale), InvalidArgument,
                 "optimizer: the scale was changed between read_gradients and the step; update the "
                 "scaler after the step");
  MANTISSA_CHECK(read.is_same(scale) || !fused_ ||
                     read.to(at::kDouble).item<double>() == scale.to(at::kDouble).item<double>(),
                 InvalidArgument, "optimizer: read_gradients had scale ", read.item<double>(),
                 " and the step has ", scale.item<double>(), "; give both the same one");
  MANTISSA_CHECK(options.found_inf.defined(), InvalidArgument,
                 "optimizer: a step without found_inf after read_gradients(scale); pass what it "
                 "reported, or gradients that are not finite are applied");
}

void Optimizer::require_whole() const {
  MANTISSA_CHECK(steps_.defined(), InvalidArgument,
                 "optimizer: was moved from; use the one that it was moved to");
}

void Optimizer::check_scale(const at::Tensor& scale) const {
  require_whole();
  if (!sums_unscaled_) {
    return;
  }
  MANTISSA_CHECK(!scale.defined(), InvalidArgument,
                 "optimizer: a scale for gradients that accumulate_(scale) has unscaled; leave it "
                 "out");
  for (const ParameterSlot& slot : slots_) {
    MANTISSA_CHECK(!slot.parameter.grad().defined(), InvalidArgument, "optimizer: parameter \"",
                   slot.name,
                   "\" has a gradient that was not accumulated; call accumulate_(scale) after each "
                   "backward");
  }
}

GradientReport Optimizer::read_gradients(const at::Tensor& scale, GradientDetail detail) {
  const at::NoGradGuard no_grad;
  check_scale(scale);
  reading_ = {scale, version_of(scale)};
  std::vector<const ParameterSlot*> read_slots;
  std::vector<at::Tensor> gradients;
  for (const ParameterSlot& slot : slots_) {
    if (at::Tensor gradient = slot.gradient(); gradient.defined()) {
      read_slots.push_back(&slot);
      gradients.push_back(std::move(gradient));
    }
  }
  std::vector<GradientStatistics> statistics;
  const ops::GradientPass pass =
      read(gradients, scale, detail == GradientDetail::parameters ? &statistics : nullptr);
  GradientReport report = {pass.found_inf, pass.norm};
  for (size_t i = 0; i < statistics.size(); ++i) {
    report.parameters.push_back({read_slots[i]->name, statistics[i]});
  }
  return report;
}

StepOutcome Optimizer::step(const StepOptions& options) { return enqueue_step(options).read(); }

PendingOutcome Optimizer::enqueue_step(const StepOptions& options) {
  const at::NoGradGuard no_grad;
  check_rate(options.lr, device_);
  check_scale(options.scale);
  require_scale_of_reading(options);
  std::vector<const ParameterSlot*> ready;
  for (const ParameterSlot& slot : slots_) {
    if (slot.gradient().defined()) {
      ready.push_back(&slot);
    }
  }
  PendingOutcome outcome = ready.empty() ? PendingOutcome() : update(ready, options);
  for (ParameterSlot& slot : slots_) {
    slot.accumulator = at::Tensor();
  }
  sums_unscaled_ = false;
  reading_.reset();
  return outcome;
}

PendingOutcome Optimizer::update(const std::vector<const ParameterSlot*>& slots,
                                 const StepOptions& options) {
  for (const ParameterSlot* slot : slots) {
    slot->forget_lost();
  }
  ops::GradientUse use = {options.scale, options.clip_factor, options.found_inf};
  return fused_ ? update_fused(slots, options.lr, use)
                : update_enqueued(slots, options, std::move(use));
}

PendingOutcome Optimizer::update_fused(const std::vector<const ParameterSlot*>& slots,
                                       const LearningRate& lr, const ops::GradientUse& use) {
  const bool applied = apply_fused(slots, rate_of(lr), steps(), use);
  steps_.add_(applied ? 1 : 0);
  return applied ? StepOutcome::applied : StepOutcome::skipped;
}

double Optimizer::rate_of(const LearningRate& lr) const {
  check_rate(lr, device_);
  const at::Tensor& rate = lr.on_device();
  const LearningRate known = rate.defined() ? LearningRate(rate.item<double>()) : lr;
  check_rate(known, device_);
  return known.value();
}

bool Optimizer::apply_fused(const std::vector<const ParameterSlot*>& slots, double lr,
                            int64_t number, const ops::GradientUse& use) {
  const Step step = {lr, {}, number};
  return options_.kind == Kind::sgd
             ? ops::sgd_(sgd_parameters(slots, options_, step), sgd(options_), use)
             : ops::adamw_(adamw_parameters(slots, options_, step), adamw(options_), use);
}

PendingOutcome Optimizer::update_enqueued(const std::vector<const ParameterSlot*>& slots,
                                          const StepOptions& options, ops::GradientUse use) {
  const at::Tensor& rate = options.lr.on_device();
  const Step step = {rate.defined() ? 1 : options.lr.value(), rate, 0};
  const bool is_sgd = options_.kind == Kind::sgd;
  if (by_kernels_) {
    use.stream_offset = steps_;
    is_sgd ? ops::sgd_enqueued_(sgd_parameters(slots, options_, step), sgd(options_), use)
           : ops::adamw_enqueued_(adamw_parameters(slots, options_, step), adamw(options_), use);
  } else {
    is_sgd ? ops::sgd_composed_(sgd_parameters(slots, options_, step), sgd(options_), use)
           : ops::adamw_composed_(adamw_parameters(slots, options_, step), adamw(options_), use);
  }
  const at::Tensor applied = use.found_inf.defined()
                                 ? use.found_inf.eq(0)
                                 : at::ones({}, steps_.options().dtype(at::kBool));
  steps_.add_(applied);
  return PendingOutcome(applied, options.outcome);
}

int64_t Optimizer::steps() const {
  require_whole();
  return steps_.item<int64_t>();
}

void Optimizer::zero_grad() {
  require_whole();
  for (ParameterSlot& slot : slots_) {
    slot.parameter.mutable_grad() = at::Tensor();
    slot.accumulator = at::Tensor();
  }
  sums_unscaled_ = false;
  reading_.reset();
}

at::Tensor Optimizer::master(const std::string& name) const {
  std::vector<std::string> names;
  for (const ParameterSlot& slot : slots_) {
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
  for (const ParameterSlot& slot : slots_) {
    result.push_back({slot.name, slot.parameter, slot.weight()});
  }
  return result;
}

std::vector<LostUpdates> Optimizer::lost_updates(double share) const {
  std::vector<LostUpdates> result;
  for (const ParameterSlot& slot : slots_) {
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
  for (const ParameterSlot& slot : slots_) {
    bytes.weights += bytes_of(slot.parameter);
    bytes.masters += slot.is_16bit() ? bytes_of(slot.master) + bytes_of(slot.rest) : 0;
    bytes.moments += bytes_of(slot.exp_avg) + bytes_of(slot.exp_avg_sq) + bytes_of(slot.momentum);
    bytes.gradients += bytes_of(slot.parameter.grad());
    bytes.accumulators += bytes_of(slot.accumulator);
  }
  return bytes;
}

}  // namespace mantissa::optim
