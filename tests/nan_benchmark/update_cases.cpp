// Optimizers, averages and schedules: nothing is differentiated.

#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_vector_norm.h>

#include "case.h"
#include "mantissa/tensor/scope.h"

namespace mantissa::nan_benchmark {

using at::Tensor;
using tensor::Scope;

namespace {

constexpr double kEps = 1e-8;  // of Adam; 0 in FP16

// x is the gradient, and the step without momentum.
std::vector<Case> adam() {
  return {
      by_both("adam_eps_in_fp16", values({0, 1e-3F}), values({0.5, 1e-3F}),
              [](const Tensor& gradient, bool is_faulty) {
                const at::NoGradGuard no_grad;
                const Scope scope("optimizer.adam");
                const Tensor m = half(gradient);
                return m.div(m.mul(m).sqrt().add(is_faulty ? kEps : 1e-3));
              }),
      by_both("adam_second_moment_vanishes", values({1e-4F, 0.5}), values({0.25, 0.5}),
              [](const Tensor& gradient, bool is_faulty) {
                const at::NoGradGuard no_grad;
                const Scope scope("optimizer.adam");
                const Tensor m = half(gradient);
                return m / (m.pow(2).sqrt() + (is_faulty ? kEps : 1e-3));
              }),
      by_both("adam_second_moment_overflows", values({300, 0.5}), values({0.25, 0.5}),
              [](const Tensor& gradient, bool is_faulty) {
                const at::NoGradGuard no_grad;
                const Scope scope("optimizer.adam");
                const Tensor m = half(gradient);
                return m / (m.pow(2).sqrt() + (is_faulty ? kEps : 1e-3));
              }),
      by_value("adam_addcdiv_in_fp16", values({0, 1e-3F}), values({0.5, 1e-3F}),
               [](const Tensor& gradient) {
                 const at::NoGradGuard no_grad;
                 const Scope scope("optimizer.adam");
                 const Tensor m = half(gradient);
                 return filled({2}, 1, at::kHalf).addcdiv_(m, m.abs(), -1e-3);
               }),
      by_code("adam_bias_correction_at_step_zero", values({0.5, 0.25}),
              [](const Tensor& gradient, bool is_faulty) {
                const at::NoGradGuard no_grad;
                const Scope scope("optimizer.adam");
                const Tensor step = filled({}, is_faulty ? 0 : 1);
                const Tensor correction = 1.0 - filled({}, 0.9).pow(step);
                return gradient * 0.1 / correction;
              }),
      by_value("trust_ratio_without_update", filled({4}, 0), filled({4}, 0.5),
               [](const Tensor& update) {
                 const at::NoGradGuard no_grad;
                 const Scope scope("optimizer.lamb");
                 return filled({}, 2) / at::linalg_vector_norm(update);
               }),
  };
}

std::vector<Case> steps() {
  return {
      // What writes into a buffer computes in the buffer's format, whatever a policy says of add_:
      // it
      // is what makes the buffer that must be FP32, and BF16 does not help a cast of the code's
      // own.
      by_value("momentum_beyond_fp16", filled({2}, 40000), filled({2}, 40),
               [](const Tensor& gradient) {
                 const at::NoGradGuard no_grad;
                 const Scope scope("optimizer.momentum");
                 Tensor buffer = half(gradient).clone();
                 return buffer.mul_(0.9).add_(half(gradient));
               }),
      by_value("update_beyond_fp16", filled({2}, 1000), filled({2}, 1),
               [](const Tensor& gradient) {
                 const at::NoGradGuard no_grad;
                 const Scope scope("optimizer.sgd");
                 return filled({2}, 1, at::kHalf).add_(half(gradient), -100);
               }),
      by_value("clip_norm_in_fp32", filled({4}, 1e30), filled({4}, 1),
               [](const Tensor& gradient) {
                 const at::NoGradGuard no_grad;
                 const Scope scope("clip");
                 return gradient * (1.0 / gradient.pow(2).sum().sqrt());
               }),
      by_code("schedule_at_step_zero", filled({2}, 1),
              [](const Tensor& weight, bool is_faulty) {
                const at::NoGradGuard no_grad;
                Tensor rate;
                {
                  const Scope scope("schedule.inverse_root");
                  rate = filled({}, is_faulty ? 0 : 4).pow(-0.5);
                }
                const Scope scope("optimizer.sgd");
                return weight.clone().sub_(rate * weight);
              }),
      by_code("schedule_without_warmup", filled({2}, 1),
              [](const Tensor& weight, bool is_faulty) {
                const at::NoGradGuard no_grad;
                Tensor rate;
                {
                  const Scope scope("schedule.warmup");
                  rate = filled({}, 0) / filled({}, is_faulty ? 0 : 100);
                }
                const Scope scope("optimizer.sgd");
                return weight.clone().sub_(rate * weight);
              }),
      by_code("learning_rate_is_nan", filled({2}, 1),
              [](const Tensor& weight, bool is_faulty) {
                const at::NoGradGuard no_grad;
                const double rate = is_faulty ? std::numeric_limits<double>::quiet_NaN() : 0.1;
                const Scope scope("optimizer.sgd");
                return weight.clone().add_(weight, -rate);
              }),
  };
}

// Silent: FP32 would move what 16 bits leave as it is.
std::vector<Case> lost() {
  const Tensor weight = filled({4}, 1, at::kBFloat16);
  const auto is_small = [](bool is_faulty) { return is_faulty ? 1e-3 : 0.5; };
  return {
      by_code("bf16_update_lost", weight,
              [=](const Tensor& w, bool is_faulty) {
                const at::NoGradGuard no_grad;
                const Scope scope("optimizer.sgd");
                w.sub_(filled({4}, 1, at::kBFloat16), is_small(is_faulty));
                return w.detach();
              }),
      by_code("fp16_update_lost", filled({4}, 1, at::kHalf),
              [](const Tensor& w, bool is_faulty) {
                const at::NoGradGuard no_grad;
                const Scope scope("optimizer.adamw");
                w.addcdiv_(filled({4}, 1, at::kHalf), filled({4}, 1, at::kHalf),
                           is_faulty ? -1e-4 : -0.5);
                return w.detach();
              }),
      by_code("bf16_weight_decay_lost", weight,
              [](const Tensor& w, bool is_faulty) {
                const at::NoGradGuard no_grad;
                const Scope scope("optimizer.decay");
                w.mul_(1 - (is_faulty ? 1e-4 : 0.5));
                return w.detach();
              }),
      by_code("bf16_average_frozen", weight,
              [=](const Tensor& w, bool is_faulty) {
                const at::NoGradGuard no_grad;
                const Scope scope("average");
                return w.clone().lerp_(filled({4}, 0, at::kBFloat16), is_small(is_faulty));
              }),
      by_code("fp16_average_frozen", filled({4}, 0.5, at::kHalf),
              [](const Tensor& w, bool is_faulty) {
                const at::NoGradGuard no_grad;
                const Scope scope("average");
                return w.clone().lerp_(filled({4}, 1, at::kHalf), is_faulty ? 1e-4 : 0.5);
              }),
  };
}

}  // namespace

std::vector<Case> update_cases() {
  std::vector<Case> cases = adam();
  for (const std::vector<Case>& more : {steps(), lost()}) {
    cases.insert(cases.end(), more.begin(), more.end());
  }
  return cases;
}

}  // namespace mantissa::nan_benchmark
