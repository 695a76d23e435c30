// Functions that are infinite or not defined somewhere: exp, log, division, roots, arcs.

#include <ATen/TensorOperators.h>
#include <ATen/ops/lgamma.h>
#include <ATen/ops/logdet.h>
#include <ATen/ops/logit.h>

#include "case.h"
#include "mantissa/tensor/scope.h"

namespace mantissa::nan_benchmark {

using at::Tensor;
using tensor::Scope;

namespace {

// exp(11.5) is 98716: beyond FP16, not beyond FP32; exp(100) is beyond both.
std::vector<Case> exponential_cases() {
  const Tensor large = filled({4}, 11.5);
  const Tensor small = filled({4}, 1);
  return {
      by_value("exp", large, small,
               [](const Tensor& x) {
                 const Scope scope("vae.variance");
                 return half(x).exp() * 0.5;
               }),
      by_value("exp_in_region", large, small,
               [](const Tensor& x) {
                 const Scope scope("vae.variance");
                 return x.exp() * 0.5;
               }),
      by_value("exp_in_fp32", filled({4}, 100), small,
               [](const Tensor& x) {
                 const Scope scope("hazard_rate");
                 return x.exp();
               }),
      by_value("exp_in_bf16", filled({4}, 100), small,
               [](const Tensor& x) {
                 const Scope scope("hazard_rate");
                 return bfloat(x).exp();
               }),
      by_value("softmax_by_hand", large, small,
               [](const Tensor& x) {
                 const Scope scope("attention.weights");
                 const Tensor e = half(x).exp();
                 return e / e.sum(-1, true);
               }),
      by_value("logsumexp_by_hand", large, small,
               [](const Tensor& x) {
                 const Scope scope("loss.partition");
                 return half(x).exp().sum().log();
               }),
      by_value("logsumexp_by_hand_in_fp32", filled({4}, 100), small,
               [](const Tensor& x) {
                 const Scope scope("loss.partition");
                 return x.exp().sum().log();
               }),
      by_value("softplus_by_hand", large, small,
               [](const Tensor& x) {
                 const Scope scope("rate.softplus");
                 return (half(x).exp() + 1.0).log();
               }),
      by_value("sigmoid_by_hand", filled({4}, -11.5), small,
               [](const Tensor& x) {
                 const Scope scope("gate");
                 return (half(x).neg().exp() + 1.0).reciprocal();
               }),
      by_value("silu_by_hand_in_fp32", filled({4}, -100), small,
               [](const Tensor& x) {
                 const Scope scope("feed_forward.silu");
                 return x / (x.neg().exp() + 1.0);
               }),
      by_value("tanh_by_hand", large, small,
               [](const Tensor& x) {
                 const Tensor y = half(x);
                 const Scope scope("cell.tanh");
                 const Tensor up = y.exp();
                 const Tensor down = y.neg().exp();
                 return (up - down) / (up + down);
               }),
      by_value("expm1", large, small,
               [](const Tensor& x) {
                 const Scope scope("elu");
                 return half(x).expm1() * 0.5;
               }),
      by_value("perplexity", large, small,
               [](const Tensor& x) {
                 const Tensor y = half(x).mean();
                 const Scope scope("metrics.perplexity");
                 return y.exp() * 0.5;
               }),
      by_value("risk_set_cumulative_sum", filled({2048}, 4), filled({2048}, 0),
               [](const Tensor& x) {
                 const Tensor e = half(x).exp();
                 const Scope scope("loss.risk_set");
                 return e.cumsum(0).log();
               }),
  };
}

std::vector<Case> domain_cases() {
  return {
      by_value("log_of_underflowed_softmax", values({0, -20}), values({0, -2}),
               [](const Tensor& x) {
                 Tensor p;
                 {
                   const Scope scope("head.softmax");
                   p = half(x).softmax(-1);
                 }
                 const Scope scope("loss.log");
                 return p.log();
               }),
      by_value("log_of_zero", values({0, 1}), values({0.5, 1}),
               [](const Tensor& x) {
                 const Scope scope("features.log");
                 return x.log();
               }),
      by_value("log_of_negative", values({1.5, 0.5}), values({0.25, 0.5}),
               [](const Tensor& x) {
                 const Scope scope("complement");
                 return (1.0 - x).log();
               }),
      by_value("log1p_of_minus_two", values({3, -2}), values({3, 0}),
               [](const Tensor& x) {
                 const Scope scope("counts.log1p");
                 return x.log1p();
               }),
      by_both("clamp_below_fp16", values({0, 1}), values({0.5, 1}),
              [](const Tensor& x, bool is_faulty) {
                const Scope scope("loss.safe_log");
                return half(x).clamp_min(is_faulty ? 1e-8 : 1e-3).log();
              }),
      by_both("eps_below_fp16_in_log", values({0, 1}), values({0.5, 1}),
              [](const Tensor& x, bool is_faulty) {
                const Scope scope("loss.safe_log");
                return (x + (is_faulty ? 1e-8 : 1e-3)).log();
              }),
      by_value("zero_by_zero", values({0, 0}), values({0, 1}),
               [](const Tensor& x) {
                 const Scope scope("pool.mean");
                 return x / x.sum();
               }),
      by_value("one_by_zero", values({0, 1}), values({0.5, 1}),
               [](const Tensor& x) {
                 const Scope scope("weights.inverse");
                 return 2.0 * filled({2}, 1).div(x);
               }),
      by_value("temperature_of_zero", filled({1}, 0), filled({1}, 0.5),
               [](const Tensor& x) {
                 const Scope scope("sampling");
                 return (values({1, 2, 3}) / x).softmax(-1);
               }),
      by_value("sqrt_of_negative", values({-1e-6, 4}), values({1, 4}),
               [](const Tensor& x) {
                 const Scope scope("distance");
                 return x.sqrt();
               }),
      by_value("rsqrt_of_zero", values({0, 4}), values({1, 4}),
               [](const Tensor& x) {
                 const Scope scope("inverse_root");
                 return x.rsqrt();
               }),
      by_value("acos_beyond_one", values({1.0000002F, 0}), values({0.5, 0}),
               [](const Tensor& x) {
                 const Scope scope("angle");
                 return x.acos();
               }),
      by_value("asin_beyond_one", values({-1.0000002F, 0}), values({0.5, 0}),
               [](const Tensor& x) {
                 const Scope scope("angle");
                 return x.asin();
               }),
      // 0.9999 rounds to 1 in FP16.
      by_value("atanh_of_rounded_one", filled({2}, 0.9999), filled({2}, 0.5),
               [](const Tensor& x) {
                 const Scope scope("hyperbolic");
                 return x.atanh();
               }),
      by_value("logit_of_rounded_one", filled({2}, 0.9999), filled({2}, 0.5),
               [](const Tensor& x) {
                 const Scope scope("methylation.logit");
                 return at::logit(x);
               }),
      by_value("erfinv_of_one", filled({2}, 1), filled({2}, 0.5),
               [](const Tensor& x) {
                 const Scope scope("quantile");
                 return x.erfinv();
               }),
      by_value("acosh_below_one", filled({2}, 0.5), filled({2}, 2),
               [](const Tensor& x) {
                 const Scope scope("hyperbolic");
                 return x.acosh();
               }),
      by_value("negative_power_of_zero", values({0, 4}), values({1, 4}),
               [](const Tensor& x) {
                 const Scope scope("degree.normalize");
                 return x.pow(-0.5);
               }),
      by_value("root_of_negative_by_pow", values({-8, 4}), values({8, 4}),
               [](const Tensor& x) {
                 const Scope scope("cube_root");
                 return x.pow(1.0 / 3);
               }),
      by_value("lgamma_of_zero", values({0, 2}), values({1, 2}),
               [](const Tensor& x) {
                 const Scope scope("loss.negative_binomial");
                 return at::lgamma(x);
               }),
      by_value("logdet_of_singular", filled({2, 2}, 1), values({2, 0, 0, 2}).view({2, 2}),
               [](const Tensor& x) {
                 const Scope scope("flow.volume");
                 return at::logdet(x);
               }),
      by_value("entropy_by_hand", values({0, 1}), values({0.5, 0.5}),
               [](const Tensor& x) {
                 const Scope scope("entropy");
                 return (x * x.log()).neg();
               }),
  };
}

}  // namespace

std::vector<Case> function_cases() {
  std::vector<Case> cases = exponential_cases();
  const std::vector<Case> more = domain_cases();
  cases.insert(cases.end(), more.begin(), more.end());
  return cases;
}

}  // namespace mantissa::nan_benchmark
