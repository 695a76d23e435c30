#include "mantissa/amp/scale_tensors.h"

#include <limits>

#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

namespace mantissa::amp {
namespace {

at::Tensor scalar(double value, at::ScalarType dtype, at::Device device) {
  return at::full({}, value, at::device(device).dtype(dtype));
}

}  // namespace

ScaleTensors::ScaleTensors(const ScaleState& state, at::Device device)
    : scale(scalar(state.scale, at::kFloat, device)),
      growth_tracker(scalar(state.growth_tracker, at::kInt, device)),
      overflows_left(scalar(state.overflows_left, at::kInt, device)),
      settled(scalar(state.settled, at::kFloat, device)),
      skipped(scalar(static_cast<double>(state.skipped), at::kLong, device)),
      skipped_in_row(scalar(static_cast<double>(state.skipped_in_row), at::kLong, device)) {}

std::array<std::pair<const char*, at::Tensor>, 6> ScaleTensors::named() const {
  return {{{"scale", scale},
           {"growth_tracker", growth_tracker},
           {"overflows_left", overflows_left},
           {"settled", settled},
           {"skipped", skipped},
           {"skipped_in_row", skipped_in_row}}};
}

ScaleState ScaleTensors::read() const {
  return {*scale.const_data_ptr<float>(),
          *growth_tracker.const_data_ptr<int32_t>(),
          *overflows_left.const_data_ptr<int32_t>(),
          *settled.const_data_ptr<float>(),
          *skipped.const_data_ptr<int64_t>(),
          *skipped_in_row.const_data_ptr<int64_t>()};
}

void ScaleTensors::write(const ScaleState& state) const {
  *scale.mutable_data_ptr<float>() = state.scale;
  *growth_tracker.mutable_data_ptr<int32_t>() = state.growth_tracker;
  *overflows_left.mutable_data_ptr<int32_t>() = state.overflows_left;
  *settled.mutable_data_ptr<float>() = state.settled;
  *skipped.mutable_data_ptr<int64_t>() = state.skipped;
  *skipped_in_row.mutable_data_ptr<int64_t>() = state.skipped_in_row;
}

void ScaleTensors::advance(const LossScalerOptions& options, const at::Tensor& found_inf,
                           const at::Tensor& model_fault) const {
  const at::Tensor skips = found_inf.reshape({}).ne(0);
  const at::Tensor clean = skips.logical_not();
  const at::Tensor overflow = skips.logical_and(model_fault.reshape({}).eq(0));
  skipped.add_(skips);
  if (options.kind == ScaleKind::dynamic) {
    const at::Tensor spent = overflows_left.sub(1);
    const at::Tensor lowers = overflow.logical_and(spent.eq(0));
    const at::Tensor lowered = scale.mul(options.backoff);
    const at::Tensor grown = scale.mul(options.growth);
    at::Tensor interval = at::full_like(growth_tracker, options.growth_interval);
    if (options.regrowth_interval > 0) {
      const at::Tensor regrowth = at::full_like(growth_tracker, options.regrowth_interval);
      interval = at::where(grown.le(settled), regrowth, interval);
    }
    const at::Tensor restart = at::full_like(growth_tracker, -options.growth_delay);
    const at::Tensor counted = at::where(clean, growth_tracker.add(1), growth_tracker);
    const at::Tensor tracker = at::where(overflow, restart, counted);
    // Before it is counted: a loaded count may be the largest int32.
    const at::Tensor grows = clean.logical_and(growth_tracker.ge(interval.sub(1)));
    const at::Tensor refills = options.refill == HysteresisRefill::each_finite_step ? clean : grows;
    const at::Tensor full = at::full_like(overflows_left, options.hysteresis);
    const float ceiling = options.ceiling.value_or(std::numeric_limits<float>::max());

    settled.copy_(at::where(lowers.logical_and(skipped_in_row.eq(0)), lowered, settled));
    overflows_left.copy_(
        at::where(refills, full, at::where(overflow, spent.clamp_min(1), overflows_left)));
    growth_tracker.copy_(at::where(grows, at::zeros_like(tracker), tracker));
    scale.copy_(at::where(grows.logical_and(grown.isfinite()), grown.clamp_max(ceiling),
                          at::where(lowers, lowered.clamp_min(options.floor), scale)));
  }
  skipped_in_row.copy_(at::where(skips, skipped_in_row.add(1), at::zeros_like(skipped_in_row)));
}

}  // namespace mantissa::amp
