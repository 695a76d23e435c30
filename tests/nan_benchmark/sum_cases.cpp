// Sums, powers and products of numbers beyond 65504, the largest number of FP16.

#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/upsample_bicubic2d.h>

#include "case.h"
#include "mantissa/tensor/scope.h"

namespace mantissa::nan_benchmark {

using at::Tensor;
using tensor::Scope;

namespace {

std::vector<Case> elementwise_cases() {
  return {
      by_value("residual_add", filled({4}, 40000), filled({4}, 40),
               [](const Tensor& x) {
                 const Tensor y = half(x);
                 const Scope scope("blocks.3.residual");
                 return y + y;
               }),
      by_value("difference_of_large", filled({4}, 40000), filled({4}, 40),
               [](const Tensor& x) {
                 const Tensor y = half(x);
                 const Scope scope("contrast");
                 return y.neg() - y;
               }),
      by_value("embedding_of_huge_norm", filled({4, 8}, 4000), filled({4, 8}, 1),
               [](const Tensor& x) {
                 Tensor rows;
                 {
                   const Scope scope("embedding");
                   rows = at::embedding(half(x), values({0, 1, 1, 3}).to(at::kLong));
                 }
                 const Scope scope("embedding.scale");
                 return rows * 32.0;
               }),
      by_value("square_by_product", filled({4}, 300), filled({4}, 3),
               [](const Tensor& x) {
                 const Tensor y = half(x);
                 const Scope scope("energy");
                 return y * y;
               }),
      by_value("square_by_pow", filled({4}, 300), filled({4}, 3),
               [](const Tensor& x) {
                 const Scope scope("energy");
                 return half(x).pow(2);
               }),
      by_value("cubic_activation", filled({4}, 50), filled({4}, 0.5),
               [](const Tensor& x) {
                 const Tensor y = half(x);
                 const Scope scope("feed_forward.cubic");
                 return y + 0.044715 * y.pow(3);
               }),
      by_value("bicubic_overshoot",
               values({-60000, -60000, 60000, 60000}).view({1, 1, 1, 4}).repeat({1, 1, 4, 1}),
               values({-1, -1, 1, 1}).view({1, 1, 1, 4}).repeat({1, 1, 4, 1}),
               [](const Tensor& x) {
                 const Scope scope("decoder.upsample");
                 return at::upsample_bicubic2d(half(x), {8, 8}, false);
               }),
      by_value("reciprocal_of_subnormal", filled({4}, 1e-6), filled({4}, 0.5),
               [](const Tensor& x) {
                 const Scope scope("rates");
                 return x.reciprocal();
               }),
      by_value("division_by_small_std", values({300, 301}), values({1, 2}),
               [](const Tensor& x) {
                 const Tensor y = half(x);
                 const Scope scope("whiten");
                 return y / filled({1}, 1e-3, at::kHalf);
               }),
      by_value("contrastive_temperature", filled({4}, 90), filled({4}, 0.9),
               [](const Tensor& x) {
                 const Scope scope("loss.info_nce");
                 return (half(x) / 1e-3).log_softmax(-1);
               }),
      // In FP32, which no precision of training exceeds.
      by_value("reciprocal_in_fp32", filled({4}, 1e-40), filled({4}, 0.5),
               [](const Tensor& x) {
                 const Scope scope("rates");
                 return x.reciprocal();
               }),
      by_value("chain_of_products_in_fp32", filled({4}, 1e10), filled({4}, 1),
               [](const Tensor& x) {
                 Tensor y = x;
                 for (int i = 0; i < 4; ++i) {
                   const Scope scope("layers." + std::to_string(i));
                   y = y * x;
                 }
                 return y;
               }),
  };
}

std::vector<Case> reduction_cases() {
  const Tensor large = filled({1024}, 100);
  const Tensor small = filled({1024}, 1);
  return {
      by_value("sum", large, small,
               [](const Tensor& x) {
                 const Scope scope("pool");
                 return half(x).sum();
               }),
      by_value("sum_in_region", large, small,
               [](const Tensor& x) {
                 const Scope scope("pool");
                 return x.sum();
               }),
      by_value("cumulative_sum", large, small,
               [](const Tensor& x) {
                 const Scope scope("positions.offsets");
                 return half(x).cumsum(0);
               }),
      by_value("cumulative_product", filled({17}, 2), filled({17}, 1),
               [](const Tensor& x) {
                 const Scope scope("decay");
                 return half(x).cumprod(0) * 0.25;
               }),
      by_value("product", filled({17}, 2), filled({17}, 1),
               [](const Tensor& x) {
                 const Scope scope("likelihood");
                 return half(x).prod() * 0.25;
               }),
      by_value("norm", filled({1024}, 3000), filled({1024}, 3),
               [](const Tensor& x) {
                 const Scope scope("clip");
                 return at::linalg_vector_norm(half(x));
               }),
      by_value("variance", values({0, 1000}), values({0, 1}),
               [](const Tensor& x) {
                 const Scope scope("statistics");
                 return half(x).var();
               }),
      by_value("squared_norm", filled({64}, 60), filled({64}, 1),
               [](const Tensor& x) {
                 const Tensor y = half(x);
                 const Scope scope("distance");
                 return y.mul(y).sum().sqrt();
               }),
      by_value("norm_in_fp32", filled({4}, 1e25), filled({4}, 1),
               [](const Tensor& x) {
                 const Scope scope("clip");
                 return x.pow(2).sum().sqrt();
               }),
  };
}

}  // namespace

std::vector<Case> sum_cases() {
  std::vector<Case> cases = elementwise_cases();
  const std::vector<Case> more = reduction_cases();
  cases.insert(cases.end(), more.begin(), more.end());
  return cases;
}

}  // namespace mantissa::nan_benchmark
