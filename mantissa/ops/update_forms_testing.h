#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "mantissa/ops/weight_update.h"

// For tests: weights to be updated, in each form that an optimizer keeps them in.
namespace mantissa::ops {

// How the FP32 weight is kept: see WeightUpdate.
enum class Kept { alone, master, split, compensated, rounded, stochastic };

struct Form {
  at::ScalarType dtype;
  Kept kept;
};

// But for stochastic rounding, which ATen operations have not.
inline const std::vector<Form> kForms = {
    {at::kFloat, Kept::alone},          {at::kBFloat16, Kept::master},
    {at::kHalf, Kept::master},          {at::kBFloat16, Kept::split},
    {at::kBFloat16, Kept::compensated}, {at::kHalf, Kept::compensated},
    {at::kBFloat16, Kept::rounded},     {at::kHalf, Kept::rounded}};

inline WeightUpdate weight_of(const Form& form, const at::Tensor& start,
                              const at::Tensor& gradient) {
  WeightUpdate update;
  update.gradient = gradient;
  update.lr = 0.03;
  update.weight_decay = 0.01;
  const at::Tensor model = start.to(form.dtype);
  if (form.kept == Kept::alone || form.kept == Kept::master) {
    update.master = model.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  }
  if (form.kept != Kept::alone) {
    update.model = model;
  }
  if (form.kept == Kept::split) {
    update.rest = at::zeros_like(model, at::kShort);
  } else if (form.kept == Kept::compensated) {
    update.rest = at::zeros_like(model);
  } else if (form.kept == Kept::rounded) {
    update.lost = at::zeros({}, at::kLong);
  } else if (form.kept == Kept::stochastic) {
    update.rounding = numerics::Rounding::stochastic;
    update.seed = 11;
  }
  return update;
}

// Of any device. Also the sign of a zero and the payload of a NaN.
inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined()) {
    return !b.defined();
  }
  const at::Tensor here = a.cpu();
  const at::ScalarType integer = b.element_size() == 2 ? at::kShort : at::kInt;
  return b.is_floating_point() ? at::equal(here.view(integer), b.view(integer))
                               : at::equal(here, b);
}

inline void expect_same(const WeightUpdate& there, const WeightUpdate& here) {
  EXPECT_TRUE(same_bits(there.master, here.master));
  EXPECT_TRUE(same_bits(there.model, here.model));
  EXPECT_TRUE(same_bits(there.rest, here.rest));
  EXPECT_TRUE(same_bits(there.lost, here.lost));
}

}  // namespace mantissa::ops
