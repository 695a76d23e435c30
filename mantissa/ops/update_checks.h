#pragma once

#include <atomic>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mantissa/ops/cpu/optimizer_passes.h"
#include "mantissa/ops/moment.h"
#include "mantissa/ops/place.h"
#include "mantissa/ops/weight_update.h"

/// The border of the passes over weights and gradients; `where` begins each message.
namespace mantissa::ops {

/// Dense strides instead of sparse indices, on any device. Duplicates are added in FP32, for in
/// BF16 a sum of ones stops at 256, and the sum is rounded to the gradient's own dtype, so that its
/// overflow shows. They are not sorted, which would wait for the device.
at::Tensor to_strided(const at::Tensor& gradient);

void check_gradient(const at::Tensor& gradient, at::Device device, const Place& where);

/// The weight alone: master, model, rest and rounding.
void check_weight(const WeightUpdate& update, at::Device device, const Place& where);

/// The gradient of a checked weight: as the weight, of any strides.
void check_gradient_of(const WeightUpdate& update, at::Device device, const Place& where);

/// A 0-d Float tensor, or undefined.
void check_scalar(const at::Tensor& scalar, at::Device device, const char* name,
                  const Place& where);

/// A 0-d Long tensor.
void check_step(const at::Tensor& step, at::Device device, const Place& where);

void check_has_momentum(const Moment& momentum, double decay, const Place& where);

/// Of the fused passes, on the CPU. Also brings the gradient into the master's order of memory.
WeightUpdate checked(const WeightUpdate& update, const Place& where);

/// The gradient of a checked weight in the order of memory of the master, or of the model.
at::Tensor ordered_gradient(const WeightUpdate& update);

/// The tensor whose shape and strides all others of an update have: the master, or the model.
const at::Tensor& pattern_of(const WeightUpdate& update);

/// Pointers into a checked update, also one without a gradient; `lost` is where lost updates are
/// counted, or null.
cpu::WeightView weight_view(const WeightUpdate& update, std::atomic<int64_t>* lost);

/// Element by element, in the order of memory: what the passes over weights are tested against.
std::vector<float> weights_reference(const WeightUpdate& update);
void store_weights_reference(const WeightUpdate& update, const std::vector<float>& weights);

/// Tells LibTorch that a tensor, or the weights, changed through their pointers, so that autograd
/// and caches of casts notice.
void mark_changed(const at::Tensor& tensor);
void mark_changed(const WeightUpdate& update);

/// 1 / scale in FP64, rounded to FP32.
float inverse_of_scale(const at::Tensor& scale, const Place& where);

/// (1 / scale) * clip_factor.
float gradient_factor(const GradientUse& use, const Place& where);

bool must_skip(const GradientUse& use, const Place& where);

}  // namespace mantissa::ops
