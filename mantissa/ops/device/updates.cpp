#include <cmath>
#include <cstddef>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/DeviceGuard.h>

#include "mantissa/base/error.h"
#include "mantissa/ops/adamw.h"
#include "mantissa/ops/composed/weights.h"
#include "mantissa/ops/device/arrays.h"
#include "mantissa/ops/device_kernels.h"
#include "mantissa/ops/moment_storage.h"
#include "mantissa/ops/sgd.h"
#include "mantissa/ops/update_checks.h"

namespace mantissa::ops {
namespace {

using cuda::Kept;
using cuda::UpdateTensor;

Kept kept(const WeightUpdate& weight) {
  if (weight.master.defined()) {
    return Kept::master;
  }
  if (weight.rest.defined()) {
    return weight.rest.scalar_type() == at::kShort ? Kept::split : Kept::compensated;
  }
  return weight.rounding == numerics::Rounding::stochastic ? Kept::rounded_stochastically
                                                           : Kept::rounded;
}

void check(const WeightUpdate& weight, at::Device device, const Place& where) {
  check_weight(weight, device, where);
  check_gradient_of(weight, device, where);
  composed::check_rate(weight, device, where);
}

void check(const Moment& moment, const WeightUpdate& weight, const Place& where) {
  check_moment(moment, pattern_of(weight), where);
  MANTISSA_CHECK(moment.values.scalar_type() != at::kByte, Unsupported, where,
                 " is blockwise8, which only the fused passes on cpu store; use "
                 "MomentFormat::fp32 or bf16");
}

void* data_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data_ptr() : nullptr;
}

cuda::MomentArray array_of(const Moment& moment) {
  if (!moment.values.defined()) {
    return {};
  }
  return {moment.values.mutable_data_ptr(), moment.seed, moment.stream,
          device::storage_of(moment.values.scalar_type())};
}

/// The parameters of a step as the kernels take them.
class Updates {
 public:
  Updates(const DeviceKernels& kernels, at::Device device, const GradientUse& use)
      : kernels_(kernels), guard_(device), stream_(kernels.current_stream(device)) {
    use_.scale = device::scalar_of(use.scale);
    use_.clip_factor = device::scalar_of(use.clip_factor);
    use_.found_inf = device::scalar_of(use.found_inf);
    if (use.stream_offset.defined()) {
      use_.stream_offset = use.stream_offset.const_data_ptr<int64_t>();
    }
  }

  void set_decay(WeightDecay decay) { use_.decay_is_coupled = decay == WeightDecay::l2; }

  void add(const WeightUpdate& weight, const Moment& first, const Moment& second,
           const at::Tensor& step) {
    const at::Tensor gradient = ordered_gradient(weight);
    if (gradient.numel() == 0) {
      return;
    }
    gradients_.push_back(gradient);
    UpdateTensor tensor = {};
    tensor.gradient = gradient.const_data_ptr();
    tensor.gradient_storage = device::storage_of(gradient.scalar_type());
    tensor.master = static_cast<float*>(data_of(weight.master));
    tensor.model = data_of(weight.model);
    tensor.model_storage = weight.model.defined() ? device::storage_of(weight.model.scalar_type())
                                                  : cuda::Storage::fp32;
    tensor.rest = data_of(weight.rest);
    tensor.kept = kept(weight);
    tensor.first = array_of(first);
    tensor.second = array_of(second);
    tensor.step = step.defined() ? step.const_data_ptr<int64_t>() : nullptr;
    const bool counts_lost = weight.lost.defined() && tensor.kept == Kept::rounded;
    tensor.lost =
        counts_lost ? reinterpret_cast<unsigned long long*>(data_of(weight.lost)) : nullptr;
    tensor.count = gradient.numel();
    tensor.lr = weight.lr;
    tensor.weight_decay = weight.weight_decay;
    if (weight.lr_factor.defined()) {
      tensor.lr_factor = weight.lr_factor.const_data_ptr();
      tensor.lr_factor_is_double = weight.lr_factor.scalar_type() == at::kDouble;
    }
    tensor.seed = weight.seed;
    tensor.stream = weight.stream;
    tensor.is_aligned = true;
    for (const at::Tensor& each :
         {gradient, weight.master, weight.model, weight.rest, first.values, second.values}) {
      tensor.is_aligned = tensor.is_aligned && device::is_aligned(each);
    }
    tensors_.push_back(tensor);
  }

  /// launch(list, stream) of lists that hold all parameters together.
  template <typename Launch>
  void run(const Launch& launch, const char* name) const {
    for (size_t begin = 0; begin < tensors_.size(); begin += cuda::UpdateList::kMost) {
      cuda::UpdateList list = {};
      list.use = use_;
      for (size_t i = begin; i < tensors_.size() && list.size < cuda::UpdateList::kMost; ++i) {
        device::append(list, tensors_[i], tensors_[i].count, cuda::kUpdatePiece);
      }
      check_launch(kernels_, launch(list, stream_), name);
    }
  }

  void count(const std::vector<int64_t*>& steps) const {
    for (size_t begin = 0; begin < steps.size(); begin += cuda::StepCounts::kMost) {
      cuda::StepCounts counts = {};
      counts.found_inf = use_.found_inf;
      for (size_t i = begin; i < steps.size() && counts.size < cuda::StepCounts::kMost; ++i) {
        counts.steps[counts.size++] = steps[i];
      }
      check_launch(kernels_, kernels_.functions->count_steps(counts, stream_), "adamw_enqueued_");
    }
  }

 private:
  const DeviceKernels& kernels_;
  c10::DeviceGuard guard_;
  void* stream_;
  cuda::UpdateUse use_ = {};
  std::vector<UpdateTensor> tensors_;
  std::vector<at::Tensor> gradients_;  // kept until their kernels are enqueued
};

void check(const GradientUse& use, at::Device device, const char* where) {
  composed::check_use(use, device, where);
  if (use.stream_offset.defined()) {
    MANTISSA_CHECK(use.stream_offset.dim() == 0 && use.stream_offset.scalar_type() == at::kLong &&
                       use.stream_offset.device() == device,
                   InvalidArgument, where, ": stream_offset is ", use.stream_offset.scalar_type(),
                   " of shape ", use.stream_offset.sizes(), " on ", use.stream_offset.device(),
                   "; pass a 0-d Long tensor on ", device);
  }
}

void mark_changed_by_kernel(const WeightUpdate& weight, const Moment& first, const Moment& second) {
  mark_changed(weight);
  mark_changed(weight.rest);
  mark_changed(weight.lost);
  mark_changed(first.values);
  mark_changed(second.values);
}

}  // namespace

void adamw_enqueued_(const std::vector<AdamwParameter>& parameters, const AdamwOptions& options,
                     const GradientUse& use) {
  if (parameters.empty()) {
    return;
  }
  const at::NoGradGuard no_grad;
  const at::Device device = pattern_of(parameters[0].weight).device();
  const DeviceKernels* kernels = device_kernels(device);
  if (kernels == nullptr) {
    adamw_composed_(parameters, options, use);
    return;
  }
  check(use, device, "adamw_enqueued_");
  for (size_t i = 0; i < parameters.size(); ++i) {
    const AdamwParameter& parameter = parameters[i];
    const Place where("adamw_enqueued_", "parameter", i);
    check(parameter.weight, device, where);
    check(parameter.exp_avg, parameter.weight, where.part("exp_avg"));
    check(parameter.exp_avg_sq, parameter.weight, where.part("exp_avg_sq"));
    check_step(parameter.step, device, where);
  }
  Updates updates(*kernels, device, use);
  updates.set_decay(options.decay);
  std::vector<int64_t*> steps;
  for (const AdamwParameter& parameter : parameters) {
    updates.add(parameter.weight, parameter.exp_avg, parameter.exp_avg_sq, parameter.step);
    steps.push_back(parameter.step.mutable_data_ptr<int64_t>());
  }
  const cuda::AdamwFactors factors = {
      static_cast<float>(options.beta1), static_cast<float>(1 - options.beta1),
      static_cast<float>(options.beta2), static_cast<float>(1 - options.beta2),
      static_cast<float>(options.eps)};
  updates.run(
      [&](const cuda::UpdateList& list, void* stream) {
        return kernels->functions->adamw(list, factors, std::log(options.beta1),
                                         std::log(options.beta2), stream);
      },
      "adamw_enqueued_");
  updates.count(steps);
  for (const AdamwParameter& parameter : parameters) {
    mark_changed_by_kernel(parameter.weight, parameter.exp_avg, parameter.exp_avg_sq);
    mark_changed(parameter.step);
  }
}

void sgd_enqueued_(const std::vector<SgdParameter>& parameters, const SgdOptions& options,
                   const GradientUse& use) {
  if (parameters.empty()) {
    return;
  }
  const at::NoGradGuard no_grad;
  const at::Device device = pattern_of(parameters[0].weight).device();
  const DeviceKernels* kernels = device_kernels(device);
  if (kernels == nullptr) {
    sgd_composed_(parameters, options, use);
    return;
  }
  check(use, device, "sgd_enqueued_");
  for (size_t i = 0; i < parameters.size(); ++i) {
    const SgdParameter& parameter = parameters[i];
    const Place where("sgd_enqueued_", "parameter", i);
    check(parameter.weight, device, where);
    check_has_momentum(parameter.momentum, options.momentum, where);
    if (parameter.momentum.values.defined()) {
      check(parameter.momentum, parameter.weight, where.part("momentum"));
    }
  }
  Updates updates(*kernels, device, use);
  updates.set_decay(options.decay);
  for (const SgdParameter& parameter : parameters) {
    updates.add(parameter.weight, parameter.momentum, {}, {});
  }
  const auto momentum = static_cast<float>(options.momentum);
  const cuda::SgdFactors factors = {momentum, options.kind == Momentum::nesterov ? momentum : 0.0F};
  updates.run([&](const cuda::UpdateList& list,
                  void* stream) { return kernels->functions->sgd(list, factors, stream); },
              "sgd_enqueued_");
  for (const SgdParameter& parameter : parameters) {
    mark_changed_by_kernel(parameter.weight, parameter.momentum, {});
  }
}

}  // namespace mantissa::ops
