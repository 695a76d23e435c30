// Normalizations: eps below what the format holds, rows without variance, squares beyond it.

#include <ATen/TensorOperators.h>
#include <ATen/ops/group_norm.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linalg_vector_norm.h>

#include "case.h"
#include "mantissa/tensor/scope.h"

namespace mantissa::nan_benchmark {

using at::Tensor;
using tensor::Scope;

namespace {

constexpr double kEps = 1e-8;  // 0 in FP16, whose smallest number is 5.96e-8

Tensor variance_by_squares(const Tensor& x) { return x.pow(2).mean() - x.mean().pow(2); }

std::vector<Case> by_hand() {
  const Tensor constant_row = filled({1, 4}, 3);
  const Tensor row = values({1, 2, 3, 4}).view({1, 4});
  return {
      by_both("layer_norm_by_hand_eps_below_fp16", constant_row, row,
              [](const Tensor& x, bool is_faulty) {
                const Tensor y = half(x);
                const Scope scope("blocks.0.norm");
                const Tensor centered = y - y.mean(-1, true);
                return centered /
                       (centered.pow(2).mean(-1, true) + (is_faulty ? kEps : 1e-3)).sqrt();
              }),
      by_value("rms_norm_by_hand_of_large", filled({1, 4}, 300), row,
               [](const Tensor& x) {
                 const Tensor y = half(x);
                 const Scope scope("blocks.0.rms_norm");
                 return y * (y.pow(2).mean(-1, true) + 1e-5).rsqrt();
               }),
      by_both("rms_norm_by_hand_eps_below_fp16", filled({1, 4}, 0), row,
              [](const Tensor& x, bool is_faulty) {
                const Tensor y = half(x);
                const Scope scope("blocks.0.rms_norm");
                return y * (y.pow(2).mean(-1, true) + (is_faulty ? kEps : 1e-3)).rsqrt();
              }),
      by_both("unit_vector_eps_below_fp16", filled({4}, 0), row.flatten(),
              [](const Tensor& x, bool is_faulty) {
                const Scope scope("embedding.normalize");
                return x / (at::linalg_vector_norm(x) + (is_faulty ? kEps : 1e-3));
              }),
      by_value("weight_norm_of_zero", filled({2, 4}, 0), filled({2, 4}, 1),
               [](const Tensor& v) {
                 Tensor w;
                 {
                   const Scope scope("stem.weight_norm");
                   w = v / at::linalg_vector_norm(v, 2, {1}, true);
                 }
                 const Scope scope("stem");
                 return w.mm(filled({4, 1}, 1));
               }),
      by_value("spectral_norm_of_zero", filled({2, 2}, 0), filled({2, 2}, 1),
               [](const Tensor& w) {
                 const Scope scope("critic.spectral_norm");
                 const Tensor u = w.detach().mv(filled({2}, 1));
                 const Tensor direction = u / at::linalg_vector_norm(u);
                 return w / direction.dot(w.mv(filled({2}, 0.5)));
               }),
      // In FP16, whose step is 1 here, the mean of the squares is 1109 and the squared mean 1110.
      by_value("variance_by_squares", values({33.34375, 33.25, 33.34375, 33.25}),
               values({1, 2, 4, 5}),
               [](const Tensor& x) {
                 const Tensor y = half(x);
                 const Scope scope("statistics");
                 return variance_by_squares(y).sqrt();
               }),
      by_value("variance_by_squares_in_fp32",
               values({10000.0029296875F, 10000.0009765625F, 10000.0029296875F, 10000}),
               values({1, 2, 4, 5}),
               [](const Tensor& x) {
                 const Scope scope("statistics");
                 return variance_by_squares(x).sqrt();
               }),
      by_value("z_score_of_constant_row", filled({4}, 3), values({1, 2, 3, 4}),
               [](const Tensor& x) {
                 const Scope scope("features.z_score");
                 return (x - x.mean()) / x.std();
               }),
      by_value("library_size_of_empty_cell", filled({4}, 0), values({1, 0, 3, 4}),
               [](const Tensor& counts) {
                 const Scope scope("expression.normalize");
                 return (counts / counts.sum() * 1e4).log1p();
               }),
  };
}

std::vector<Case> of_libtorch() {
  return {
      by_value("layer_norm_without_eps", filled({1, 4}, 3), values({1, 2, 3, 4}).view({1, 4}),
               [](const Tensor& x) {
                 const Scope scope("blocks.0.norm");
                 return at::layer_norm(x, {4}, {}, {}, 0);
               }),
      by_value("group_norm_without_eps", filled({1, 4, 2}, 3),
               values({1, 2, 3, 4, 5, 6, 7, 8}).view({1, 4, 2}),
               [](const Tensor& x) {
                 const Scope scope("unet.norm");
                 return at::group_norm(x, 2, {}, {}, 0);
               }),
  };
}

}  // namespace

std::vector<Case> norm_cases() {
  std::vector<Case> cases = by_hand();
  const std::vector<Case> more = of_libtorch();
  cases.insert(cases.end(), more.begin(), more.end());
  return cases;
}

}  // namespace mantissa::nan_benchmark
