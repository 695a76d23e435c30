// Losses, by hand and those of LibTorch.

#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/cosine_similarity.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/ctc_loss.h>
#include <ATen/ops/l1_loss.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/poisson_nll_loss.h>
#include <ATen/ops/smooth_l1_loss.h>

#include "case.h"
#include "mantissa/tensor/scope.h"

namespace mantissa::nan_benchmark {

using at::Tensor;
using tensor::Scope;

namespace {

std::vector<Case> by_hand() {
  return {
      by_value("cross_entropy_by_hand", values({0, 0, 20}), values({0, 0, 2}),
               [](const Tensor& x) {
                 const Scope scope("loss.cross_entropy");
                 return half(x).softmax(-1).log().neg().narrow(0, 0, 1);
               }),
      // 8192 numbers of log 8192 are 73817.
      by_code("label_smoothing_sum", filled({1, 8192}, 0),
              [](const Tensor& x, bool is_faulty) {
                const Tensor logits = is_faulty ? half(x) : half(x).narrow(1, 0, 1024);
                const Scope scope("loss.label_smoothing");
                return logits.log_softmax(-1).sum(-1).neg();
              }),
      by_value("bce_by_hand", values({12, 0}), values({2, 0}),
               [](const Tensor& x) {
                 Tensor p;
                 {
                   const Scope scope("head.sigmoid");
                   p = half(x).sigmoid();
                 }
                 const Scope scope("loss.bce");
                 return (1.0 - p).log().neg();
               }),
      by_value("kl_by_hand", values({0, 1}), values({0.5, 0.5}),
               [](const Tensor& q) {
                 const Tensor p = filled({2}, 0.5);
                 const Scope scope("loss.kl");
                 return p * (p.log() - q.log());
               }),
      by_value("dice_of_empty_masks", filled({4}, 0), filled({4}, 1),
               [](const Tensor& x) {
                 const Tensor target = x.detach();
                 const Scope scope("loss.dice");
                 return 1.0 - 2.0 * (x * target).sum() / (x.sum() + target.sum());
               }),
      by_both("dice_smoothing_below_fp16", filled({4}, 0), filled({4}, 1),
              [](const Tensor& x, bool is_faulty) {
                const Tensor p = half(x);
                const Tensor target = p.detach();
                const Scope scope("loss.dice");
                const Tensor both = (p * target).sum();
                return 1.0 - 2.0 * both / ((p + target).sum() + (is_faulty ? 1e-8 : 1e-3));
              }),
      by_value("squared_hinge", filled({4}, -300), filled({4}, 0.5),
               [](const Tensor& x) {
                 const Scope scope("loss.hinge");
                 return (1.0 - half(x)).clamp_min(0).pow(2);
               }),
      by_value("gaussian_nll_of_zero_variance", values({0, 1}), values({0.5, 1}),
               [](const Tensor& variance) {
                 const Scope scope("loss.gaussian_nll");
                 const Tensor first = 0.5 * variance.log();
                 return first + 0.5 / variance;
               }),
      by_value("cosine_by_hand_of_zero", filled({4}, 0), filled({4}, 1),
               [](const Tensor& x) {
                 const Tensor other = values({1, 2, 3, 4});
                 const Scope scope("loss.cosine");
                 return (x * other).sum() / (x.pow(2).sum() * other.pow(2).sum()).pow(0.5);
               }),
      by_value("vae_kl", filled({4}, 11.5), filled({4}, 0),
               [](const Tensor& x) {
                 const Tensor log_variance = half(x);
                 const Scope scope("loss.vae_kl");
                 return -0.5 * (1.0 + log_variance - log_variance.exp());
               }),
      by_value("mean_absolute_percentage", values({0, 1}), values({0.5, 1}),
               [](const Tensor& target) {
                 const Scope scope("loss.percentage");
                 return ((target - 2.0) / target).abs();
               }),
  };
}

std::vector<Case> of_libtorch() {
  const Tensor far = filled({4}, 300);
  const Tensor near = filled({4}, 3);
  return {
      by_value("mse_of_huge_targets", far, near,
               [](const Tensor& x) {
                 const Scope scope("loss.mse");
                 return at::mse_loss(half(x), filled({4}, 0, at::kHalf));
               }),
      by_value("mse_in_bf16_of_huge_targets", filled({4}, 1e20), near,
               [](const Tensor& x) {
                 const Scope scope("loss.mse");
                 return at::mse_loss(bfloat(x), filled({4}, 0, at::kBFloat16));
               }),
      by_value("l1_sum", filled({1024}, 100), filled({1024}, 1),
               [](const Tensor& x) {
                 const Scope scope("loss.l1");
                 return at::l1_loss(half(x), filled({1024}, 0, at::kHalf), at::Reduction::Sum);
               }),
      by_value("smooth_l1_sum", filled({1024}, 100), filled({1024}, 1),
               [](const Tensor& x) {
                 const Scope scope("loss.smooth_l1");
                 return at::smooth_l1_loss(half(x), filled({1024}, 0, at::kHalf),
                                           at::Reduction::Sum);
               }),
      by_value("poisson_nll", filled({4}, 12), filled({4}, 1),
               [](const Tensor& x) {
                 const Scope scope("loss.poisson");
                 return at::poisson_nll_loss(half(x), filled({4}, 2, at::kHalf),
                                             /*log_input=*/true, /*full=*/false, 1e-8,
                                             at::Reduction::Mean);
               }),
      by_both("poisson_nll_of_zero_rate", values({0, 1}), values({0.5, 1}),
              [](const Tensor& x, bool is_faulty) {
                const Scope scope("loss.poisson");
                return at::poisson_nll_loss(x, filled({2}, 2),
                                            /*log_input=*/false, /*full=*/false,
                                            is_faulty ? 1e-8 : 1e-3, at::Reduction::Mean);
              }),
      by_code("cross_entropy_without_targets", values({1, 2, 3, 4}).view({2, 2}),
              [](const Tensor& x, bool is_faulty) {
                const Tensor targets = filled({2}, is_faulty ? -100 : 1, at::kLong);
                const Scope scope("loss.cross_entropy");
                return at::cross_entropy_loss(x, targets);
              }),
      // Three labels do not fit into two moments.
      by_code("ctc_target_too_long", filled({3, 1, 4}, 0),
              [](const Tensor& x, bool is_faulty) {
                const Tensor targets = values({1, 2, 3}).to(at::kLong).view({1, 3});
                const Scope scope("loss.ctc");
                return at::ctc_loss(x.log_softmax(-1), targets, {is_faulty ? 2 : 3}, {3});
              }),
  };
}

}  // namespace

std::vector<Case> loss_cases() {
  std::vector<Case> cases = by_hand();
  const std::vector<Case> more = of_libtorch();
  cases.insert(cases.end(), more.begin(), more.end());
  return cases;
}

}  // namespace mantissa::nan_benchmark
