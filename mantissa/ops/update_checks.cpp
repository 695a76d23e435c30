#include "mantissa/ops/update_checks.h"

#include <algorithm>

#include <ATen/ops/empty_like.h>

#include "mantissa/base/error.h"
#include "mantissa/base/random.h"
#include "mantissa/numerics/rounding.h"
#include "mantissa/ops/split_weight.h"
#include "mantissa/tensor/dtype.h"

namespace mantissa::ops {
namespace {

float scalar_or(const at::Tensor& tensor, float otherwise, const char* name, const Place& where) {
  if (!tensor.defined()) {
    return otherwise;
  }
  check_scalar(tensor, at::kCPU, name, where);
  return tensor.item<float>();
}

}  // namespace

at::Tensor to_strided(const at::Tensor& gradient) {
  if (gradient.layout() == at::kStrided) {
    return gradient;
  }
  return gradient.to(at::kFloat).to_dense().to(gradient.scalar_type());
}

void check_scalar(const at::Tensor& scalar, at::Device device, const char* name,
                  const Place& where) {
  MANTISSA_CHECK(!scalar.defined() || (scalar.scalar_type() == at::kFloat && scalar.dim() == 0),
                 InvalidArgument, where, ": ", name, " is ", scalar.scalar_type(), " of shape ",
                 scalar.sizes(), "; pass a 0-d Float tensor");
  MANTISSA_CHECK(!scalar.defined() || scalar.device() == device, InvalidArgument, where, ": ", name,
                 " is on ", scalar.device(), "; move it to ", device);
}

void check_step(const at::Tensor& step, at::Device device, const Place& where) {
  MANTISSA_CHECK(step.defined() && step.dim() == 0 && step.scalar_type() == at::kLong,
                 InvalidArgument, where, ": step is not a 0-d Long tensor; pass one");
  MANTISSA_CHECK(step.device() == device, InvalidArgument, where, ": step is on ", step.device(),
                 "; move it to ", device);
}

void check_has_momentum(const Moment& momentum, double decay, const Place& where) {
  const bool has_buffer = momentum.values.defined();
  MANTISSA_CHECK(has_buffer == (decay != 0), InvalidArgument, where, ": momentum is ", decay,
                 " and its buffer is ", has_buffer ? "defined" : "undefined",
                 "; pass a buffer exactly when momentum is not 0");
}

void check_gradient(const at::Tensor& gradient, at::Device device, const Place& where) {
  MANTISSA_CHECK(gradient.defined(), InvalidArgument, where,
                 " is undefined; leave out parameters without a gradient");
  MANTISSA_CHECK(gradient.device() == device, InvalidArgument, where, " is on ", gradient.device(),
                 "; move it to ", device);
  const at::ScalarType dtype = gradient.scalar_type();
  MANTISSA_CHECK(dtype == at::kFloat || tensor::is_16bit(dtype), InvalidArgument, where, " is ",
                 dtype, "; valid: Float BFloat16 Half");
}

const at::Tensor& pattern_of(const WeightUpdate& update) {
  return update.master.defined() ? update.master : update.model;
}

namespace {

void check_model(const WeightUpdate& update, const Place& where) {
  const at::Tensor& pattern = pattern_of(update);
  MANTISSA_CHECK(
      tensor::is_16bit(update.model.scalar_type()) && update.model.sizes() == pattern.sizes() &&
          update.model.strides() == pattern.strides() &&
          update.model.is_non_overlapping_and_dense() && update.model.device() == pattern.device(),
      InvalidArgument, where, ": the model copy is ", update.model.scalar_type(), " of shape ",
      update.model.sizes(), " and strides ", update.model.strides(),
      "; it must be BFloat16 or Half with the master's shape ", pattern.sizes(), " and strides ",
      pattern.strides());
}

void check_rest(const WeightUpdate& update, const Place& where) {
  const at::ScalarType model = update.model.defined() ? update.model.scalar_type() : at::kFloat;
  const at::ScalarType dtype = update.rest.scalar_type();
  const bool is_split = dtype == at::kShort && model == at::kBFloat16;
  MANTISSA_CHECK(
      !update.master.defined() && (is_split || (tensor::is_16bit(model) && dtype == model)),
      InvalidArgument, where, ": a rest of ", dtype, " with a model of ", model,
      update.master.defined() ? " and a master" : "",
      "; valid without a master: Short with BFloat16, or the dtype of the model");
  MANTISSA_CHECK(update.rest.sizes() == update.model.sizes() &&
                     update.rest.strides() == update.model.strides() &&
                     update.rest.device() == update.model.device(),
                 InvalidArgument, where,
                 ": the rest does not fit the model; make it with zeros_like(model)");
}

}  // namespace

void check_weight(const WeightUpdate& update, at::Device device, const Place& where) {
  const at::Tensor& master = update.master;
  MANTISSA_CHECK(master.defined() || update.model.defined(), InvalidArgument, where,
                 ": neither a master nor a model is given; pass one");
  MANTISSA_CHECK(
      !master.defined() || (master.device() == device && master.scalar_type() == at::kFloat &&
                            master.is_non_overlapping_and_dense()),
      InvalidArgument, where, ": the master is not a dense Float tensor on ", device, "; pass one");
  MANTISSA_CHECK(pattern_of(update).device() == device, InvalidArgument, where,
                 ": the model copy is on ", pattern_of(update).device(), "; move it to ", device);
  if (update.model.defined()) {
    check_model(update, where);
  }
  if (update.rest.defined()) {
    check_rest(update, where);
  }
  MANTISSA_CHECK(update.rounding == numerics::Rounding::nearest_even ||
                     (update.rounding == numerics::Rounding::stochastic && !master.defined() &&
                      !update.rest.defined()),
                 InvalidArgument, where, ": rounding ", numerics::to_string(update.rounding),
                 " has no effect here; it counts for a model without master and rest, where "
                 "nearest_even and stochastic are valid");
}

void check_gradient_of(const WeightUpdate& update, at::Device device, const Place& where) {
  const at::Tensor& pattern = pattern_of(update);
  check_gradient(update.gradient, device, where.part("the gradient"));
  MANTISSA_CHECK(update.gradient.sizes() == pattern.sizes(), InvalidArgument, where,
                 ": the gradient has shape ", update.gradient.sizes(), ", the master ",
                 pattern.sizes(), "; pass the gradient of this parameter");
}

at::Tensor ordered_gradient(const WeightUpdate& update) {
  const at::Tensor& pattern = pattern_of(update);
  at::Tensor gradient = to_strided(update.gradient);
  if (gradient.strides() == pattern.strides()) {
    return gradient;
  }
  return at::empty_like(pattern, pattern.options().dtype(gradient.scalar_type())).copy_(gradient);
}

WeightUpdate checked(const WeightUpdate& update, const Place& where) {
  check_weight(update, at::kCPU, where);
  check_gradient_of(update, at::kCPU, where);
  MANTISSA_CHECK(
      !update.lr_factor.defined(), InvalidArgument, where,
      ": lr_factor is for the composed and the enqueued passes; the fused ones take a number, lr");
  WeightUpdate result = update;
  result.gradient = ordered_gradient(update);
  return result;
}

cpu::WeightView weight_view(const WeightUpdate& update, std::atomic<int64_t>* lost) {
  cpu::WeightView view = {};
  if (update.master.defined()) {
    view.master = update.master.mutable_data_ptr<float>();
  }
  view.model_dtype = at::kFloat;
  if (update.model.defined()) {
    view.model = update.model.mutable_data_ptr();
    view.model_dtype = update.model.scalar_type();
  }
  if (update.rest.defined()) {
    view.rest = update.rest.mutable_data_ptr();
    view.rest_is_bits = update.rest.scalar_type() == at::kShort;
  }
  view.rounding = update.rounding;
  view.seed = update.seed;
  view.stream = update.stream;
  view.lost = update.lost.defined() ? lost : nullptr;
  if (update.gradient.defined()) {
    view.gradient = {update.gradient.const_data_ptr(), update.gradient.scalar_type(),
                     update.gradient.numel()};
  }
  return view;
}

namespace {

// The elements of a dense tensor in the order of memory.
at::Tensor flat(const at::Tensor& tensor) {
  return tensor.detach().as_strided({tensor.numel()}, {1});
}

std::vector<float> floats_of(const at::Tensor& tensor) {
  const at::Tensor wide = flat(tensor).to(at::kFloat);
  const float* values = wide.const_data_ptr<float>();
  return {values, values + wide.numel()};
}

numerics::Format format_of_model(const WeightUpdate& update) {
  return tensor::format_of(update.model.scalar_type());
}

}  // namespace

std::vector<float> weights_reference(const WeightUpdate& update) {
  if (update.master.defined()) {
    return floats_of(update.master);
  }
  std::vector<float> weights = floats_of(update.model);
  if (!update.rest.defined()) {
    return weights;
  }
  if (update.rest.scalar_type() == at::kShort) {
    const auto* model = static_cast<const uint16_t*>(update.model.const_data_ptr());
    const auto* rest = update.rest.const_data_ptr<int16_t>();
    for (size_t i = 0; i < weights.size(); ++i) {
      weights[i] = join_weight({model[i], rest[i]});
    }
    return weights;
  }
  const std::vector<float> rest = floats_of(update.rest);
  for (size_t i = 0; i < weights.size(); ++i) {
    weights[i] += rest[i];
  }
  return weights;
}

void store_weights_reference(const WeightUpdate& update, const std::vector<float>& weights) {
  if (update.master.defined()) {
    std::copy(weights.begin(), weights.end(), update.master.mutable_data_ptr<float>());
  }
  if (!update.model.defined()) {
    return;
  }
  auto* model = static_cast<uint16_t*>(update.model.mutable_data_ptr());
  if (update.rest.defined() && update.rest.scalar_type() == at::kShort) {
    auto* rest = update.rest.mutable_data_ptr<int16_t>();
    for (size_t i = 0; i < weights.size(); ++i) {
      const SplitWeight split = split_weight(weights[i]);
      model[i] = split.model;
      rest[i] = split.rest;
    }
    return;
  }
  const numerics::Format format = format_of_model(update);
  Random random(update.seed, update.stream);
  for (size_t i = 0; i < weights.size(); ++i) {
    const float before = numerics::decode(format, model[i]);
    const uint32_t bits = update.rounding == numerics::Rounding::stochastic ? random.next_u32() : 0;
    model[i] = static_cast<uint16_t>(numerics::encode(format, weights[i], update.rounding, bits));
    const float after = numerics::decode(format, model[i]);
    if (update.rest.defined()) {
      static_cast<uint16_t*>(update.rest.mutable_data_ptr())[i] =
          static_cast<uint16_t>(numerics::encode(format, weights[i] - after));
    } else if (update.lost.defined() && !update.master.defined() &&
               update.rounding == numerics::Rounding::nearest_even && before == after &&
               weights[i] != before) {
      update.lost.add_(1);
    }
  }
}

void mark_changed(const at::Tensor& tensor) {
  if (tensor.defined() && !tensor.is_inference()) {
    tensor.unsafeGetTensorImpl()->bump_version();
  }
}

void mark_changed(const WeightUpdate& update) {
  mark_changed(update.master);
  mark_changed(update.model);
}

float inverse_of_scale(const at::Tensor& scale, const Place& where) {
  return static_cast<float>(1.0 / static_cast<double>(scalar_or(scale, 1.0F, "scale", where)));
}

float gradient_factor(const GradientUse& use, const Place& where) {
  MANTISSA_CHECK(!use.stream_offset.defined(), InvalidArgument, where,
                 ": stream_offset is for the enqueued passes; add it to the streams");
  return inverse_of_scale(use.scale, where) *
         scalar_or(use.clip_factor, 1.0F, "clip_factor", where);
}

bool must_skip(const GradientUse& use, const Place& where) {
  return scalar_or(use.found_inf, 0.0F, "found_inf", where) != 0;
}

}  // namespace mantissa::ops
