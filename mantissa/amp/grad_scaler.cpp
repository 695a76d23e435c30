#include "mantissa/amp/grad_scaler.h"

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones_like.h>

#include "mantissa/amp/unscale.h"
#include "mantissa/base/error.h"

namespace mantissa::amp {
namespace {

// Finds a gradient again without keeping its memory; its address is not used for another one.
using WeakTensor = c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>;

// How often the tensor was written to.
int64_t version_of(const at::TensorImpl& tensor) {
  const c10::VariableVersion& counter = tensor.version_counter();
  return counter.enabled() ? counter.current_version() : 0;  // none in inference mode
}

struct Gradient {
  size_t parameter;  // of the optimizer
  at::Tensor value;
};

// Each gradient once, also of a parameter that is listed twice.
std::vector<Gradient> gradients_of(at::TensorList parameters) {
  std::vector<Gradient> result;
  std::unordered_set<const at::TensorImpl*> seen;
  for (size_t i = 0; i < parameters.size(); ++i) {
    MANTISSA_CHECK(parameters[i].defined(), InvalidArgument, "GradScaler: parameter ", i,
                   " of the optimizer is undefined; give it tensors");
    const at::Tensor gradient = parameters[i].grad();
    if (gradient.defined() && seen.insert(gradient.unsafeGetTensorImpl()).second) {
      result.push_back({i, gradient});
    }
  }
  return result;
}

// Only the sum of duplicate indices tells whether a sparse gradient is finite; it is taken in FP32
// or FP64.
at::Tensor coalesced(const at::Tensor& gradient) {
  if (gradient.scalar_type() == at::kBFloat16) {
    return gradient.to(at::kFloat).coalesce().to(at::kBFloat16);
  }
  return gradient.coalesce();
}

at::Tensor dense_part(const at::Tensor& gradient) {
  return gradient.is_sparse() ? gradient._values() : gradient;
}

LossScalerOptions rule_of(const GradScalerOptions& options) {
  LossScalerOptions rule = scale_preset("torch");
  rule.initial = options.init_scale;
  rule.growth = options.growth_factor;
  rule.backoff = options.backoff_factor;
  rule.growth_interval = options.growth_interval;
  return rule;
}

float fp32_of(const tensor::StateDict& state, const std::string& name) {
  const double value = state.real(name);
  MANTISSA_CHECK(std::abs(value) <= std::numeric_limits<float>::max(), Corruption,
                 "GradScaler: the state has ", name, " ", value, "; valid: a finite FP32 number");
  return static_cast<float>(value);
}

int32_t int32_of(const tensor::StateDict& state, const std::string& name) {
  const int64_t value = state.integer(name);
  MANTISSA_CHECK(value >= 0 && value <= std::numeric_limits<int32_t>::max(), Corruption,
                 "GradScaler: the state has ", name, " ", value, "; valid: 0 to 2^31 - 1");
  return static_cast<int32_t>(value);
}

}  // namespace

struct GradScaler::Iteration {
  struct Stage {
    bool unscaled = false;
    bool stepped = false;
    int64_t scale_calls = 0;  // when it was unscaled
    at::Tensor found_inf;     // undefined: it had no gradient
  };

  struct Unscaled {
    WeakTensor gradient;
    int64_t version;                          // when it was unscaled
    std::optional<int64_t> version_at_scale;  // at the first call of scale() after that
  };

  std::unordered_map<const void*, Stage> stages;  // by optimizer
  std::unordered_map<const at::TensorImpl*, Unscaled> unscaled;
  int64_t scale_calls = 0;

  // From here on a gradient that is written to may have got scaled values.
  void note_scale() {
    ++scale_calls;
    for (auto& [address, entry] : unscaled) {
      if (const auto gradient = entry.gradient.lock(); gradient && !entry.version_at_scale) {
        entry.version_at_scale = version_of(*gradient);
      }
    }
  }

  void note_unscaled(const at::Tensor& gradient) {
    unscaled.insert_or_assign(gradient.unsafeGetTensorImpl(),
                              Unscaled{WeakTensor(gradient.getIntrusivePtr()),
                                       version_of(*gradient.unsafeGetTensorImpl()), std::nullopt});
  }

  bool is_unscaled(size_t parameter, const at::Tensor& gradient) const {
    const auto entry = unscaled.find(gradient.unsafeGetTensorImpl());
    if (entry == unscaled.end()) {
      return false;
    }
    MANTISSA_CHECK(version_of(*entry->first) == entry->second.version, InvalidArgument,
                   "GradScaler: parameter ", parameter,
                   " of the optimizer has a gradient that was unscaled for another optimizer and "
                   "changed since; unscale_ both optimizers before clipping, and set shared "
                   "gradients to none before the next backward");
    return true;
  }

  void require_no_scaled_values(const Stage& stage, const std::vector<Gradient>& gradients) const {
    if (stage.scale_calls == scale_calls) {
      return;
    }
    for (const auto& [parameter, gradient] : gradients) {
      const auto entry = unscaled.find(gradient.unsafeGetTensorImpl());
      MANTISSA_CHECK(
          entry != unscaled.end() && entry->second.version_at_scale == version_of(*entry->first),
          InvalidArgument, "GradScaler: parameter ", parameter,
          " of the optimizer has a gradient that changed after unscale_ and a further "
          "scale(loss): scaled values in unscaled ones; call unscale_ after the last "
          "backward, then clip, then step");
    }
  }
};

GradScaler::GradScaler(at::Device device, const GradScalerOptions& options)
    : options_(options),
      scaler_(device, rule_of(options)),
      iteration_(std::make_unique<Iteration>()) {}

GradScaler::~GradScaler() = default;
GradScaler::GradScaler(GradScaler&&) noexcept = default;
GradScaler& GradScaler::operator=(GradScaler&&) noexcept = default;

GradScaler::Iteration& GradScaler::iteration() const {
  MANTISSA_CHECK(iteration_ != nullptr, InvalidArgument,
                 "GradScaler: was moved from; use the one that it was moved to");
  return *iteration_;
}

at::Tensor GradScaler::scale(const at::Tensor& loss) {
  if (!options_.enabled) {
    return loss;
  }
  iteration().note_scale();
  return scaler_.scale(loss);
}

std::vector<at::Tensor> GradScaler::scale(at::TensorList losses) {
  std::vector<at::Tensor> scaled;
  for (const at::Tensor& loss : losses) {
    scaled.push_back(scale(loss));
  }
  return scaled;
}

void GradScaler::require_scalable(const at::Tensor& gradient, size_t parameter) const {
  const auto dtype = gradient.scalar_type();
  MANTISSA_CHECK(
      dtype != at::kHalf, InvalidArgument, "GradScaler: parameter ", parameter,
      " of the optimizer has an FP16 gradient, and unscaling it would lose the bits that "
      "scaling has saved; keep parameters in FP32, or use mantissa::optim::Optimizer");
  MANTISSA_CHECK(dtype == at::kFloat || dtype == at::kDouble || dtype == at::kBFloat16,
                 InvalidArgument, "GradScaler: parameter ", parameter,
                 " of the optimizer has a gradient of ", dtype, "; valid: Float Double BFloat16");
  MANTISSA_CHECK(gradient.layout() == at::kStrided || gradient.layout() == at::kSparse, Unsupported,
                 "GradScaler: parameter ", parameter, " of the optimizer has a gradient of layout ",
                 gradient.layout(), "; valid: Strided Sparse");
  MANTISSA_CHECK(gradient.device() == scaler_.value().device(), InvalidArgument,
                 "GradScaler: parameter ", parameter, " of the optimizer has a gradient on ",
                 gradient.device(), " but the scale is on ", scaler_.value().device(),
                 "; make the scaler on the device of the model");
}

void GradScaler::unscale_parameters(const void* optimizer, at::TensorList parameters) {
  if (!options_.enabled) {
    return;
  }
  const at::NoGradGuard no_grad;
  Iteration::Stage stage;
  if (const auto found = iteration().stages.find(optimizer); found != iteration().stages.end()) {
    stage = found->second;
  }
  MANTISSA_CHECK(!stage.stepped, InvalidArgument,
                 "GradScaler: unscale_ after step; call it before, or update() in between");
  MANTISSA_CHECK(
      !stage.unscaled, InvalidArgument,
      "GradScaler: unscale_ twice for one optimizer since the last update(); with several "
      "backward passes call it once, after the last one, or discard() a step that is left "
      "out");
  const std::vector<Gradient> gradients = gradients_of(parameters);
  std::vector<at::Tensor> scaled;
  std::vector<at::Tensor> scaled_values;
  std::vector<at::Tensor> unscaled_values;  // for another optimizer
  for (const auto& [parameter, gradient] : gradients) {
    require_scalable(gradient, parameter);  // all of them, before any is replaced
  }
  for (const auto& [parameter, gradient] : gradients) {
    if (iteration().is_unscaled(parameter, gradient)) {
      unscaled_values.push_back(dense_part(gradient));
      continue;
    }
    scaled.push_back(gradient.is_sparse() ? coalesced(gradient) : gradient);
    scaled_values.push_back(dense_part(scaled.back()));
    parameters[parameter].mutable_grad() = scaled.back();
  }
  if (!gradients.empty()) {
    const at::Tensor& scale = scaler_.value();
    stage.found_inf = at::maximum(unscale_and_check_(scaled_values, scale, true),
                                  unscale_and_check_(unscaled_values, at::ones_like(scale), false));
  }
  for (const at::Tensor& gradient : scaled) {
    iteration().note_unscaled(gradient);
  }
  stage.unscaled = true;
  stage.scale_calls = iteration().scale_calls;
  iteration().stages[optimizer] = stage;
}

StepOutcome GradScaler::decide(const void* optimizer, at::TensorList parameters) {
  const std::vector<Gradient> gradients = gradients_of(parameters);
  if (!options_.enabled) {
    return gradients.empty() ? StepOutcome::nothing_to_do : StepOutcome::applied;
  }
  const auto found = iteration().stages.find(optimizer);
  MANTISSA_CHECK(found == iteration().stages.end() || !found->second.stepped, InvalidArgument,
                 "GradScaler: step twice for one optimizer since the last update(); call update() "
                 "after the steps of all optimizers");
  if (found == iteration().stages.end()) {
    unscale_parameters(optimizer, parameters);
  } else {
    iteration().require_no_scaled_values(found->second, gradients);
  }
  Iteration::Stage& stage = iteration().stages.at(optimizer);
  stage.stepped = true;
  if (gradients.empty() || !stage.found_inf.defined()) {
    return StepOutcome::nothing_to_do;
  }
  if (stage.found_inf.item<float>() == 0) {
    return StepOutcome::applied;
  }
  MANTISSA_CHECK(get_scale() > scaler_.options().floor, InvalidArgument,
                 "GradScaler: gradients are not finite at the smallest scale, ", get_scale(),
                 "; no scale helps: find the first value that is not finite in the forward pass");
  return StepOutcome::skipped;
}

void GradScaler::update() {
  if (!options_.enabled) {
    return;
  }
  MANTISSA_CHECK(
      !iteration().stages.empty(), InvalidArgument,
      "GradScaler: update without a step since the last one; call step(optimizer) first");
  std::vector<at::Tensor> found_infs;
  for (const auto& [optimizer, stage] : iteration().stages) {
    if (stage.found_inf.defined()) {
      found_infs.push_back(stage.found_inf);
    }
  }
  if (!found_infs.empty()) {
    scaler_.update(found_infs);
  }
  discard();
}

void GradScaler::update(float new_scale) {
  if (!options_.enabled) {
    return;
  }
  MANTISSA_CHECK(std::isnormal(new_scale) && new_scale > 0, InvalidArgument,
                 "GradScaler: new_scale is ", new_scale,
                 "; valid: a finite normal FP32 number above 0");
  discard();
  scaler_.value().fill_(new_scale);
}

void GradScaler::discard() { iteration() = Iteration(); }

float GradScaler::get_scale() const {
  (void)iteration();
  return options_.enabled ? scaler_.value().item<float>() : 1.0F;
}

tensor::StateDict GradScaler::state_dict() const {
  tensor::StateDict state;
  if (!options_.enabled) {
    return state;
  }
  MANTISSA_CHECK(iteration().stages.empty(), InvalidArgument,
                 "GradScaler: state_dict in the middle of a step; call it after update()");
  const tensor::StateDict rule = scaler_.state_dict();
  state.set("scale", static_cast<double>(get_scale()));
  state.set("growth_factor", static_cast<double>(options_.growth_factor));
  state.set("backoff_factor", static_cast<double>(options_.backoff_factor));
  state.set("growth_interval", static_cast<int64_t>(options_.growth_interval));
  state.set("_growth_tracker", static_cast<int64_t>(rule.tensor("growth_tracker").item<int32_t>()));
  return state;
}

void GradScaler::load_state_dict(const tensor::StateDict& state) {
  if (!options_.enabled) {
    return;
  }
  MANTISSA_CHECK(!state.scalars().empty(), Corruption,
                 "GradScaler: the state is empty, as that of a disabled scaler; load a state of an "
                 "enabled one, or start without");
  const GradScalerOptions options{.init_scale = fp32_of(state, "scale"),
                                  .growth_factor = fp32_of(state, "growth_factor"),
                                  .backoff_factor = fp32_of(state, "backoff_factor"),
                                  .growth_interval = int32_of(state, "growth_interval")};
  const int32_t growth_tracker = int32_of(state, "_growth_tracker");
  try {
    validate(rule_of(options));
  } catch (const InvalidArgument& error) {
    throw Corruption(concat("GradScaler: the state is damaged: ", error.what()));
  }
  LossScaler loaded(scaler_.value().device(), rule_of(options));
  const tensor::StateDict rule = loaded.state_dict();  // shares its tensors
  rule.tensor("growth_tracker").fill_(growth_tracker);
  scaler_ = std::move(loaded);
  options_ = options;
  discard();
}

}  // namespace mantissa::amp
