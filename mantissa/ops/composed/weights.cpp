#include "mantissa/ops/composed/weights.h"

#include <ATen/ops/sub.h>

#include "mantissa/base/error.h"
#include "mantissa/ops/composed/scalars.h"
#include "mantissa/ops/moment_storage.h"
#include "mantissa/ops/update_checks.h"

namespace mantissa::ops::composed {
namespace {

bool is_split(const WeightUpdate& update) {
  return update.rest.defined() && update.rest.scalar_type() == at::kShort;
}

// As split_weight() of split_weight.h, on tensors.
void store_split(const WeightUpdate& update, const at::Tensor& weights, const at::Tensor& skip) {
  constexpr int64_t kHalfOfUpper = 0x8000;
  constexpr int64_t kQuietNan = 0x7fc0;
  const at::Tensor is_nan = weights.isnan();
  const at::Tensor bits = weights.masked_fill(is_nan, 0).view(at::kInt);
  const at::Tensor upper = bits.add(kHalfOfUpper).bitwise_right_shift_(16);
  bits.sub_(upper.bitwise_left_shift(16));
  assign_unless(skip, update.rest, bits.to(at::kShort));
  assign_unless(skip, update.model.view(at::kShort),
                upper.to(at::kShort).masked_fill_(is_nan, kQuietNan));
}

// Elements whose update was not zero and is lost to rounding: see WeightUpdate::lost.
void count_lost(const WeightUpdate& update, const at::Tensor& weights, const at::Tensor& model,
                const at::Tensor& skip) {
  const at::Tensor is_lost =
      model.eq(update.model).logical_and_(weights.ne(update.model.to(at::kFloat)));
  assign_unless(skip, update.lost, update.lost.add(is_lost.sum(at::kLong)));
}

void store_weights(const WeightUpdate& update, const at::Tensor& weights, const at::Tensor& skip) {
  if (is_split(update)) {
    store_split(update, weights, skip);
    return;
  }
  if (update.model.defined()) {
    const at::Tensor model = weights.to(update.model.scalar_type());
    if (update.rest.defined()) {
      assign_unless(skip, update.rest,
                    weights.sub(model.to(at::kFloat)).to(update.rest.scalar_type()));
    } else if (update.lost.defined() && !update.master.defined()) {
      count_lost(update, weights, model, skip);
    }
    assign_unless(skip, update.model, model);
  }
  if (update.master.defined()) {
    assign_unless(skip, update.master, weights);
  }
}

}  // namespace

void check_update(const WeightUpdate& update, at::Device device, const Place& where) {
  check_weight(update, device, where);
  check_gradient_of(update, device, where);
  MANTISSA_CHECK(update.rounding == numerics::Rounding::nearest_even, Unsupported, where,
                 ": rounding is stochastic, which only the fused passes do; keep a master or "
                 "a rest, or round to nearest");
  check_rate(update, device, where);
}

void check_rate(const WeightUpdate& update, at::Device device, const Place& where) {
  const at::Tensor& factor = update.lr_factor;
  MANTISSA_CHECK(!factor.defined() ||
                     (factor.dim() == 0 && factor.device() == device &&
                      (factor.scalar_type() == at::kFloat || factor.scalar_type() == at::kDouble)),
                 InvalidArgument, where, ": lr is ", factor.scalar_type(), " of shape ",
                 factor.sizes(), " on ", factor.device(),
                 "; pass a number or a 0-d Float or Double tensor on ", device);
}

void check_moment(const Moment& moment, const WeightUpdate& update, const Place& where) {
  ops::check_moment(moment, pattern_of(update), where);
  MANTISSA_CHECK(moment.values.scalar_type() == at::kFloat, Unsupported, where, " is ",
                 moment.values.scalar_type(),
                 ", which only the fused passes store; use MomentFormat::fp32");
}

void check_use(const GradientUse& use, at::Device device, const Place& where) {
  check_scalar(use.scale, device, "scale", where);
  check_scalar(use.clip_factor, device, "clip_factor", where);
  check_scalar(use.found_inf, device, "found_inf", where);
}

at::Tensor load_weights(const WeightUpdate& update) {
  if (update.master.defined()) {
    return update.master;
  }
  if (is_split(update)) {
    const at::Tensor upper = update.model.view(at::kShort).to(at::kInt);
    return upper.bitwise_left_shift(16).add_(update.rest).view(at::kFloat);
  }
  const at::Tensor weights = update.model.to(at::kFloat);
  return update.rest.defined() ? weights.add(update.rest.to(at::kFloat)) : weights;
}

at::Tensor penalized_gradient(const WeightUpdate& update, const at::Tensor& factor,
                              WeightDecay decay, const at::Tensor& weights) {
  at::Tensor gradient = to_strided(update.gradient).to(at::kFloat);
  if (factor.defined()) {
    gradient = gradient.mul(factor);
  }
  if (decay == WeightDecay::l2 && update.weight_decay != 0) {
    gradient = gradient.add(weights.mul(static_cast<float>(update.weight_decay)));
  }
  return gradient;
}

void decrease_weights(const WeightUpdate& update, const at::Tensor& weights,
                      const at::Tensor& decrement, const at::Tensor& rate, WeightDecay decay,
                      const at::Tensor& skip) {
  if (decay == WeightDecay::decoupled && update.weight_decay != 0) {
    decrement.add_(weights.mul(rate.mul(update.weight_decay).to(at::kFloat)));
  }
  at::Tensor difference = decrement;
  at::sub_out(difference, weights, decrement);
  store_weights(update, difference, skip);
}

}  // namespace mantissa::ops::composed
