// Held out: models of counts, such as those of single cells.

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linear.h>

#include "case.h"
#include "mantissa/tensor/scope.h"

namespace mantissa::nan_benchmark {

using at::Tensor;
using tensor::Scope;

namespace {

std::vector<Case> normalization() {
  return {
      by_value("library_size_in_half", filled({1, 2000}, 40), filled({1, 2000}, 1),
               [](const Tensor& x) {
                 const Tensor counts = half(x);
                 Tensor total;
                 {
                   const Scope scope("library.size");
                   total = counts.sum(-1, true);
                 }
                 const Scope scope("library.normalize");
                 return (counts / total * 1e4).log1p();
               }),
      by_code("counts_per_million_in_half", filled({2}, 5),
              [](const Tensor& x, bool is_faulty) {
                const Tensor counts = half(x);
                const Scope scope("expression.cpm");
                return (counts / counts.sum() * (is_faulty ? 1e6 : 1e3)).log1p();
              }),
      by_value("size_factor_of_zero_counts", values({0, 3, 5}), values({1, 3, 5}),
               [](const Tensor& counts) {
                 const at::NoGradGuard no_grad;
                 const Scope scope("size_factor");
                 return counts.log().mean().exp();
               }),
      by_value("dispersion_of_unexpressed_gene", values({0, 1, 0, 2, 0, 5}).view({3, 2}),
               values({1, 1, 3, 2, 4, 5}).view({3, 2}),
               [](const Tensor& counts) {
                 const Scope scope("genes.dispersion");
                 return (counts.var(0) / counts.mean(0)).log();
               }),
      by_value("freeman_tukey_at_zero", values({0, 1, 4}), values({1, 2, 4}),
               [](const Tensor& counts) {
                 const Scope scope("features.freeman_tukey");
                 return counts.sqrt() + (counts + 1.0).sqrt();
               }),
      by_value(
          "pseudobulk_in_half", filled({2000, 4}, 40), filled({2000, 4}, 1),
          [](const Tensor& x) {
            const Tensor cells = half(x);
            const Scope scope("pseudobulk");
            return filled({2, 4}, 0, at::kHalf).index_add(0, filled({2000}, 1, at::kLong), cells);
          }),
      by_value("fold_change_of_absent_gene", values({1, 2, 0, 3}).view({2, 2}),
               values({1, 2, 1, 3}).view({2, 2}),
               [](const Tensor& means) {
                 const Scope scope("genes.fold_change");
                 return (means.select(0, 0) / means.select(0, 1)).log2();
               }),
  };
}

std::vector<Case> likelihoods() {
  return {
      by_value("dispersion_that_underflows", filled({2}, -110), filled({2}, 0.5),
               [](const Tensor& x) {
                 Tensor theta;
                 {
                   const Scope scope("head.dispersion");
                   theta = x.exp();
                 }
                 const Scope scope("loss.negative_binomial");
                 return (theta + 3.0).lgamma() - theta.lgamma();
               }),
      by_both("zero_inflated_eps_in_half", filled({2}, 0), filled({2}, 0.5),
              [](const Tensor& x, bool is_faulty) {
                const Tensor theta = half(x);
                const Tensor mean = half(x);
                const Scope scope("loss.zero_inflated");
                return (theta + mean + (is_faulty ? 1e-8 : 1e-3)).log();
              }),
      by_value("poisson_rate_in_region", filled({1, 4}, 25), filled({1, 4}, 0.5),
               [](const Tensor& x) {
                 Tensor log_rate;
                 {
                   const Scope scope("head");
                   log_rate = at::linear(x, filled({1, 4}, 1));
                 }
                 const Scope scope("loss.poisson");
                 return log_rate.exp() - log_rate * 3.0;
               }),
      by_value("sampled_latent_beyond_fp16", filled({1, 1}, 25), filled({1, 1}, 1),
               [](const Tensor& x) {
                 Tensor z;
                 {
                   const Scope scope("encoder.scale");
                   z = (at::linear(x, filled({1, 1}, 1)) * 0.5).exp();
                 }
                 const Scope scope("decoder.first");
                 return at::linear(z, filled({1, 1}, 1e-3));
               }),
      by_value("zero_inflation_odds", filled({1, 4}, 3), filled({1, 4}, 0.5),
               [](const Tensor& x) {
                 Tensor p;
                 {
                   const Scope scope("head.zero");
                   p = at::linear(x, filled({1, 4}, 1)).sigmoid();
                 }
                 const Scope scope("loss.odds");
                 return (p / (1.0 - p)).log();
               }),
  };
}

}  // namespace

std::vector<Case> held_out_counts() { return joined({normalization(), likelihoods()}); }

}  // namespace mantissa::nan_benchmark
