// Held out: contrastive losses, distributions and other losses.

#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/i0.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/linear.h>
#include <torch/csrc/autograd/autograd.h>

#include "case.h"
#include "mantissa/tensor/scope.h"

namespace mantissa::nan_benchmark {

using at::Tensor;
using tensor::Scope;

namespace {

// Within `scope`, one number a row: the sum of the row.
Tensor sum_layer(const Tensor& x, const char* name) {
  const Scope scope(name);
  return at::linear(x, filled({1, x.size(-1)}, 1));
}

std::vector<Case> contrastive() {
  return {
      by_value("clip_logit_scale", filled({2, 7}, 10), filled({2, 7}, 0.1),
               [](const Tensor& x) {
                 Tensor similarity;
                 {
                   const Scope scope("clip.similarity");
                   similarity = x.matmul(filled({7, 2}, 10));
                 }
                 const Scope scope("clip.logits");
                 return (similarity * filled({}, 4.6052).exp()).log_softmax(-1);
               }),
      by_value("zero_embedding_normalized", filled({1, 4}, 0), filled({1, 4}, 1),
               [](const Tensor& x) {
                 Tensor y;
                 {
                   const Scope scope("projector");
                   y = at::linear(x, filled({2, 4}, 1));
                 }
                 const Scope scope("projector.normalize");
                 return y / at::linalg_vector_norm(y, 2, {1}, true);
               }),
      by_code("contrast_without_positives", values({1, 2, 3, 4}).view({2, 2}),
              [](const Tensor& x, bool is_faulty) {
                const Tensor positives = filled({2, 2}, is_faulty ? 0 : 1);
                const Scope scope("loss.supervised_contrast");
                return (x.log_softmax(-1) * positives).sum(-1) / positives.sum(-1);
              }),
      by_value("info_nce_by_hand_in_region", filled({2, 7}, 1), filled({2, 7}, 0.1),
               [](const Tensor& x) {
                 Tensor similarity;
                 {
                   const Scope scope("loss.similarity");
                   similarity = x.matmul(filled({7, 2}, 1));
                 }
                 const Scope scope("loss.info_nce");
                 return (similarity / 0.07).exp().sum(-1).log();
               }),
      by_value("collapsed_projection", filled({4, 2}, 1),
               values({1, 2, 3, 1, 2, 5, 4, 4}).view({4, 2}),
               [](const Tensor& x) {
                 Tensor z;
                 {
                   const Scope scope("projector");
                   z = at::linear(x, filled({2, 2}, 1));
                 }
                 const Scope scope("loss.standardize");
                 return (z - z.mean(0)) / z.std(0);
               }),
  };
}

std::vector<Case> distributions() {
  return {
      by_value("gaussian_kl_in_region", filled({1, 300}, 1), filled({1, 300}, 0.01),
               [](const Tensor& x) {
                 const Tensor mean = sum_layer(x, "head.mean");
                 const Scope scope("loss.kl");
                 return mean * mean * 0.5;
               }),
      by_value("likelihood_of_small_variance", filled({1, 1}, 1e-3), filled({1, 1}, 0.5),
               [](const Tensor& x) {
                 const Tensor variance = sum_layer(x, "head.variance");
                 const Scope scope("loss.gaussian");
                 return filled({1, 1}, 1) / variance;
               }),
      by_value("dirichlet_at_zero", filled({2}, 0), filled({2}, 1),
               [](const Tensor& x) {
                 const Scope scope("loss.dirichlet");
                 return x.digamma();
               }),
      by_value("gumbel_of_zero_uniform", values({1e-9F, 0.5}), values({0.3F, 0.5}),
               [](const Tensor& x) {
                 const Tensor uniform = half(x);
                 const Scope scope("gumbel.noise");
                 return uniform.log().neg().log().neg();
               }),
      by_code("annealed_temperature", filled({1, 4}, 1),
              [](const Tensor& x, bool is_faulty) {
                const Tensor logits = sum_layer(x, "head");
                const Scope scope("sampling.temperature");
                return (logits / (is_faulty ? 5e-5 : 0.5)).softmax(-1);
              }),
      by_value("entropy_of_confident_policy", values({0, -200}), values({0, -2}),
               [](const Tensor& x) {
                 const Scope scope("policy.entropy");
                 const Tensor p = x.softmax(-1);
                 return (p * p.log()).neg();
               }),
      by_value("mixture_of_far_components", values({20, -21}), values({1, -1}),
               [](const Tensor& x) {
                 const Scope scope("loss.mixture");
                 return (x * x * -0.5).exp().sum().log();
               }),
      by_value("von_mises_concentration", filled({2}, 100), filled({2}, 1),
               [](const Tensor& x) {
                 const Scope scope("loss.von_mises");
                 return at::i0(x).log();
               }),
      by_value("flow_volume_by_product", filled({50}, 0.1), filled({50}, 0.9),
               [](const Tensor& x) {
                 const Scope scope("flow.volume");
                 return x.prod().log();
               }),
      by_value("tanh_squashed_policy", filled({1, 5}, 1), filled({1, 5}, 0.1),
               [](const Tensor& x) {
                 const Tensor action = sum_layer(x, "actor.mean");
                 Tensor squashed;
                 {
                   const Scope scope("actor.squash");
                   squashed = action.tanh();
                 }
                 const Scope scope("actor.log_prob");
                 return (1.0 - squashed * squashed).log();
               }),
      by_value("sinkhorn_of_small_epsilon", filled({2, 2}, 2), filled({2, 2}, 0.01),
               [](const Tensor& cost) {
                 Tensor kernel;
                 {
                   const Scope scope("sinkhorn.kernel");
                   kernel = (cost / -0.01).exp();
                 }
                 const Scope scope("sinkhorn.scaling");
                 return kernel.mv(filled({2}, 1)).reciprocal();
               }),
      by_value("signal_to_noise_at_step_zero", values({1, 0.5}), values({0.9F, 0.5}),
               [](const Tensor& x) {
                 const Scope scope("diffusion.weight");
                 return x * x / (1.0 - x * x);
               }),
  };
}

std::vector<Case> other_losses() {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  return {
      by_code("cross_entropy_of_weightless_classes", values({1, 2, 3, 4}).view({2, 2}),
              [](const Tensor& x, bool is_faulty) {
                const Tensor weight = values({is_faulty ? 0.0F : 1.0F, 1});
                const Scope scope("loss.cross_entropy");
                return at::cross_entropy_loss(x, filled({2}, 0, at::kLong), weight);
              }),
      by_code("positive_weight_without_positives", values({1, 2, 3, 4}),
              [](const Tensor& x, bool is_faulty) {
                const Tensor target = values({is_faulty ? 0.0F : 1.0F, 0, 0, 0});
                Tensor weight;
                {
                  const Scope scope("loss.positive_weight");
                  weight = (4.0 - target.sum()) / target.sum();
                }
                const Scope scope("loss.bce");
                return at::binary_cross_entropy_with_logits(x, target, {}, weight);
              }),
      by_code("missing_label_times_mask", values({1, 2}),
              [nan](const Tensor& x, bool is_faulty) {
                const Tensor target = values({is_faulty ? nan : 0.0F, 1});
                const Scope scope("loss.masked");
                const Tensor difference = (x - target) * values({0, 1});
                return difference * difference;
              }),
      by_both("charbonnier_eps_vanishes", filled({3}, 0), filled({3}, 0.5),
              [](const Tensor& x, bool is_faulty) {
                const Tensor d = half(x);
                const Scope scope("loss.charbonnier");
                return (d * d + (is_faulty ? 1e-12 : 1e-3)).sqrt();
              }),
      by_value("log_cosh_of_outlier", filled({2}, 100), filled({2}, 1),
               [](const Tensor& x) {
                 const Scope scope("loss.log_cosh");
                 return x.cosh().log();
               }),
      by_value("generalized_mean_pool", filled({4}, 1e-6), filled({4}, 0.5),
               [](const Tensor& x) {
                 const Tensor y = half(x);
                 const Scope scope("pool.generalized_mean");
                 return y.pow(3).mean().pow(1.0 / 3);
               }),
      by_value("survival_product_in_half", filled({10}, 0.9), filled({10}, 0.1),
               [](const Tensor& x) {
                 Tensor survival;
                 {
                   const Scope scope("survival.curve");
                   survival = (1.0 - half(x)).cumprod(0);
                 }
                 const Scope scope("loss.survival");
                 return survival.log();
               }),
      by_code("gradient_penalty_of_steep_critic", filled({2}, 1),
              [](const Tensor& x, bool is_faulty) {
                Tensor slope;
                {
                  const Scope scope("critic");
                  const Tensor score = (x.pow(2) * (is_faulty ? 1e20 : 1.0)).sum();
                  slope = torch::autograd::grad({score}, {x}, {}, {}, true)[0];
                }
                const Scope scope("loss.gradient_penalty");
                return slope.pow(2).sum();
              }),
  };
}

}  // namespace

std::vector<Case> held_out_losses() {
  return joined({contrastive(), distributions(), other_losses()});
}

}  // namespace mantissa::nan_benchmark
