// Functions that are finite where their derivatives are not, or whose derivatives exceed FP16.

#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/special_entr.h>
#include <ATen/ops/where.h>
#include <ATen/ops/xlogy.h>
#include <torch/csrc/autograd/autograd.h>

#include "case.h"
#include "mantissa/tensor/scope.h"

namespace mantissa::nan_benchmark {

using at::Tensor;
using tensor::Scope;

namespace {

std::vector<Case> in_fp32() {
  const Tensor zero = filled({3}, 0);
  const Tensor one = filled({3}, 1);
  return {
      by_value("norm_by_hand_at_zero", zero, one,
               [](const Tensor& x) {
                 const Scope scope("regularizer.norm");
                 return x.pow(2).sum().sqrt();
               }),
      by_value("norm_of_numbers_whose_squares_vanish", filled({3}, 1e-30), one,
               [](const Tensor& x) {
                 const Scope scope("regularizer.norm");
                 return x.pow(2).sum().sqrt();
               }),
      by_value("root_of_variance_at_zero", filled({4}, 3), values({1, 2, 3, 4}),
               [](const Tensor& x) {
                 const Scope scope("diversity");
                 return x.var().sqrt();
               }),
      by_value("distance_of_equal_points", filled({2, 3}, 1),
               values({1, 2, 3, 4, 5, 7}).view({2, 3}),
               [](const Tensor& x) {
                 const Tensor difference = x.select(0, 0) - x.select(0, 1);
                 const Scope scope("loss.triplet");
                 return (difference * difference).sum().sqrt();
               }),
      by_value("where_hides_the_root_of_a_negative", values({-1, 4}), values({1, 4}),
               [](const Tensor& x) {
                 const Scope scope("activation.root");
                 return at::where(x.gt(0), x.sqrt(), filled({2}, 0));
               }),
      by_value("where_hides_the_root_of_zero", values({0, 4}), values({1, 4}),
               [](const Tensor& x) {
                 const Scope scope("activation.root");
                 return at::where(x.gt(0), x.sqrt(), filled({2}, 0));
               }),
      by_value("where_hides_the_log_of_zero", values({0, 4}), values({1, 4}),
               [](const Tensor& x) {
                 const Scope scope("activation.log");
                 return at::where(x.gt(0), x.log(), filled({2}, 0));
               }),
      by_value("where_hides_a_division_by_zero", values({0, 4}), values({1, 4}),
               [](const Tensor& x) {
                 const Scope scope("inverse_depth");
                 return at::where(x.gt(0), filled({2}, 1) / x, filled({2}, 0));
               }),
      by_value("root_by_pow_at_zero", zero, one,
               [](const Tensor& x) {
                 const Scope scope("compress");
                 return x.pow(0.5);
               }),
      by_value("focal_power_at_one", one, filled({3}, 0.5),
               [](const Tensor& p) {
                 const Scope scope("loss.focal");
                 return (1.0 - p).pow(0.5) * p;
               }),
      by_value("acos_at_one", one, filled({3}, 0.5),
               [](const Tensor& x) {
                 const Scope scope("angle");
                 return x.acos();
               }),
      by_value("asin_at_minus_one", filled({3}, -1), filled({3}, 0.5),
               [](const Tensor& x) {
                 const Scope scope("angle");
                 return x.asin();
               }),
      by_value("hypot_at_origin", zero, one,
               [](const Tensor& x) {
                 const Scope scope("torsion");
                 return x.hypot(x * 2.0);
               }),
      by_value("entropy_at_zero", zero, filled({3}, 0.5),
               [](const Tensor& p) {
                 const Scope scope("loss.entropy");
                 return at::special_entr(p);
               }),
      by_value("xlogy_at_zero", zero, one,
               [](const Tensor& x) {
                 const Scope scope("loss.likelihood");
                 return at::xlogy(x, x);
               }),
      by_value("division_by_tiny", filled({3}, 1e-20), one,
               [](const Tensor& x) {
                 const Scope scope("attention.normalize");
                 return filled({3}, 1) / x;
               }),
      by_value("vectors_of_equal_eigenvalues", values({1, 0, 0, 1}).view({2, 2}),
               values({1, 0.5, 0.5, 3}).view({2, 2}),
               [](const Tensor& x) {
                 const Scope scope("whitening");
                 return std::get<1>(at::linalg_eigh(x)).pow(3);
               }),
      by_value("gradient_penalty_at_zero", zero, one,
               [](const Tensor& x) {
                 Tensor slope;
                 {
                   const Scope scope("critic");
                   slope = torch::autograd::grad({x.pow(3).sum()}, {x}, {}, {}, true)[0];
                 }
                 const Scope scope("loss.gradient_penalty");
                 return (slope.pow(2).sum().sqrt() - 1.0).pow(2);
               }),
  };
}

// Operations that the policy moves to FP16; their gradients are FP16 too. What one would change
// first is that policy: torch's own keeps log and the like in FP32. A loss scale below 1, to which
// a dynamic one falls by itself, is as true a cure: the gradient that leaves the region is FP32, in
// which the scale is taken back. It costs small gradients elsewhere, so it is not the only one that
// is listed.
std::vector<Case> beyond_fp16() {
  return {
      by_value("log_of_small", filled({4}, 1e-6), filled({4}, 0.5),
               [](const Tensor& x) {
                 const Scope scope("features.log");
                 return x.log();
               }),
      by_value("reciprocal_of_small", filled({4}, 1e-3), filled({4}, 0.5),
               [](const Tensor& x) {
                 const Scope scope("rates.inverse");
                 return x.reciprocal();
               }),
      by_value("rsqrt_of_small", filled({4}, 1e-4), filled({4}, 0.5),
               [](const Tensor& x) {
                 const Scope scope("precision_root");
                 return x.rsqrt();
               }),
      by_value("divisor_of_small", filled({4}, 1e-3), filled({4}, 0.5),
               [](const Tensor& x) {
                 const Scope scope("attention.normalize");
                 return filled({4}, 10) / x;
               }),
      by_value("root_of_small", filled({4}, 1e-7), filled({4}, 0.5),
               [](const Tensor& x) {
                 Tensor y;
                 {
                   const Scope scope("magnitude");
                   y = x.sqrt();
                 }
                 const Scope scope("magnitude.gain");
                 return y.mul(filled({4}, 1000, at::kHalf));
               }),
      by_value("squares_that_vanish_in_fp16", filled({4}, 1e-4), filled({4}, 0.5),
               [](const Tensor& x) {
                 const Tensor y = half(x);
                 const Scope scope("regularizer.norm");
                 return y.pow(2).sum().sqrt();
               }),
      // Slopes of 300, 300^2 = 90000 and 300^3, from the end.
      by_code("exploding_gradient", filled({1, 1}, 1e-4),
              [](const Tensor& x, bool is_faulty) {
                Tensor y = x;
                for (int i = 0; i < 3; ++i) {
                  const Scope scope("layers." + std::to_string(i));
                  y = y.mm(filled({1, 1}, is_faulty ? 300 : 3));
                }
                return y;
              }),
  };
}

}  // namespace

std::vector<Case> gradient_cases() {
  std::vector<Case> cases = in_fp32();
  const std::vector<Case> more = beyond_fp16();
  cases.insert(cases.end(), more.begin(), more.end());
  return cases;
}

}  // namespace mantissa::nan_benchmark
