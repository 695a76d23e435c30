// Layers whose gradients overflow: of weights that many positions share, of a loss scale that is
// too large, of rows that are almost constant.

#include <ATen/TensorOperators.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/upsample_nearest2d.h>

#include "case.h"
#include "mantissa/tensor/scope.h"

namespace mantissa::nan_benchmark {

using at::Tensor;
using tensor::Scope;

namespace {

// 1024 positions with a slope of 100 each add up to 102400; the result is small all the same.
std::vector<Case> shared_weights() {
  const double slope = 100;
  const Tensor weight = filled({1, 1}, 0.01);
  return {
      by_code("linear_weight_gradient", weight,
              [=](const Tensor& w, bool is_faulty) {
                const Scope scope("head");
                return at::linear(filled({1024, 1}, is_faulty ? slope : 1), w);
              }),
      by_code("linear_bias_gradient", filled({1}, 0.01),
              [=](const Tensor& bias, bool is_faulty) {
                Tensor y;
                {
                  const Scope scope("head");
                  y = at::linear(filled({1024, 1}, 0.5), filled({1, 1}, 0.5), bias);
                }
                const Scope scope("loss.weight");
                return y.mul(filled({1}, is_faulty ? slope : 1, at::kHalf));
              }),
      by_code("mm_weight_gradient", weight,
              [=](const Tensor& w, bool is_faulty) {
                const Scope scope("head.project");
                return filled({1024, 1}, is_faulty ? slope : 1).mm(w);
              }),
      by_code("conv1d_weight_gradient", filled({1, 1, 1}, 0.01),
              [=](const Tensor& w, bool is_faulty) {
                const Scope scope("stem.conv");
                return at::conv1d(filled({1, 1, 1024}, is_faulty ? slope : 1), w);
              }),
      by_code("embedding_gradient", weight,
              [=](const Tensor& table, bool is_faulty) {
                Tensor rows;
                {
                  const Scope scope("embedding");
                  rows = at::embedding(table, filled({1024}, 0, at::kLong));
                }
                const Scope scope("loss.weight");
                return rows.mul(filled({1}, is_faulty ? slope : 1, at::kHalf));
              }),
      by_code("expanded_bias_gradient", filled({1}, 0.01),
              [=](const Tensor& x, bool is_faulty) {
                Tensor y;
                {
                  const Scope scope("positions.shared");
                  y = half(x).expand({1024});
                }
                const Scope scope("loss.weight");
                return y.mul(filled({1}, is_faulty ? slope : 1, at::kHalf));
              }),
      by_code("cumulative_sum_gradient", filled({1024}, 0.01),
              [=](const Tensor& x, bool is_faulty) {
                Tensor y;
                {
                  const Scope scope("decay.cumulate");
                  y = x.cumsum(0);
                }
                const Scope scope("loss.weight");
                return y.mul(filled({1}, is_faulty ? slope : 1, at::kHalf));
              }),
  };
}

// Slopes of 30000 from several windows or copies meet in one number.
std::vector<Case> overlaps() {
  const double slope = 30000;
  const Tensor peak = values({0, 0, 0, 0, 1, 0, 0, 0, 0}).view({1, 1, 3, 3});
  return {
      by_code("max_pool_gradient", peak,
              [=](const Tensor& x, bool is_faulty) {
                Tensor y;
                {
                  const Scope scope("stage1.pool");
                  y = at::max_pool2d(x, {2, 2}, {1, 1});
                }
                const Scope scope("loss.weight");
                return y.mul(filled({1}, is_faulty ? slope : 1, at::kHalf));
              }),
      by_code("nearest_upsample_gradient", peak,
              [=](const Tensor& x, bool is_faulty) {
                Tensor y;
                {
                  const Scope scope("decoder.upsample");
                  y = at::upsample_nearest2d(x, {6, 6});
                }
                const Scope scope("loss.weight");
                return y.mul(filled({1}, is_faulty ? slope : 1, at::kHalf));
              }),
      // The sum is of no operation of the model, so it has no scope of its own: nodes run in the
      // reverse order of their operations, and the one that completes it is the first use.
      // Operations in FP32 do not cure it: each branch's gradient is cast to FP16 where y was, and
      // added there.
      by_code("two_uses_of_an_activation", filled({4}, 0.1),
              [](const Tensor& x, bool is_faulty) {
                const Tensor y = half(x);
                const Tensor weight = filled({4}, is_faulty ? 40000 : 4, at::kHalf);
                Tensor left;
                {
                  const Scope scope("branches.left");
                  left = y.mul(weight);
                }
                const Scope scope("branches.right");
                return left - y.mul(weight.neg());
              }),
  };
}

std::vector<Case> norms() {
  return {
      // rstd is 1e4 where the variance is 0.
      by_code("layer_norm_gradient_of_constant_row", filled({1, 4}, 3),
              [](const Tensor& x, bool is_faulty) {
                Tensor y;
                {
                  const Scope scope("blocks.1.norm");
                  y = at::layer_norm(x, {4}, {}, {}, is_faulty ? 1e-8 : 1e-2);
                }
                const Scope scope("blocks.1.gain");
                return y.mul(values({-20, 20, -20, 20}).to(at::kHalf));
              }),
  };
}

// A matrix product in a region: its gradient is FP16.
Tensor product(const Tensor& x, double weight) {
  const Scope scope("head");
  return x.mm(filled({1, 1}, weight));
}

std::vector<Case> loss_scales() {
  const Tensor one = filled({1, 1}, 1);
  return {
      by_code("scale_beyond_fp16", one,
              [](const Tensor& x, bool is_faulty) {
                return is_faulty ? product(x, 1) : product(x, 1).to(at::kFloat) * 1e-3;
              }),
      by_code("scale_times_slope_beyond_fp16", one,
              [](const Tensor& x, bool is_faulty) { return product(x, is_faulty ? 100 : 1); }),
      by_code("scale_after_growth", one,
              [](const Tensor& x, bool is_faulty) {
                // 80 * 512 is within FP16; the scale has just become 1024.
                return product(x, is_faulty ? 80 : 40);
              }),
      by_code("scale_in_a_deep_chain", one,
              [](const Tensor& x, bool is_faulty) {
                Tensor y = x;
                for (int i = 0; i < 4; ++i) {
                  const Scope scope("layers." + std::to_string(i));
                  y = y.mm(filled({1, 1}, is_faulty ? 8 : 2));
                }
                return y;
              }),
      by_code("large_slope_without_scale", one,
              [](const Tensor& x, bool is_faulty) {
                const Tensor y = product(x, 1);
                const Scope scope("loss.weight");
                return y.to(at::kFloat) * (is_faulty ? 1e6 : 1.0);
              }),
  };
}

}  // namespace

std::vector<Case> layer_gradient_cases() {
  std::vector<Case> cases = shared_weights();
  for (const std::vector<Case>& more : {overlaps(), norms(), loss_scales()}) {
    cases.insert(cases.end(), more.begin(), more.end());
  }
  return cases;
}

}  // namespace mantissa::nan_benchmark
