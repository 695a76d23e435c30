// Held out: optimizers and the loss scale.

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/linalg_vector_norm.h>

#include "case.h"
#include "mantissa/tensor/scope.h"

namespace mantissa::nan_benchmark {

using at::Tensor;
using tensor::Scope;

std::vector<Case> held_out_training() {
  return {
      by_value("adafactor_of_zero_gradient", filled({2, 2}, 0), filled({2, 2}, 0.5),
               [](const Tensor& gradient) {
                 const at::NoGradGuard no_grad;
                 const Scope scope("optimizer.adafactor");
                 const Tensor rows = (gradient * gradient).mean(1);
                 return rows / rows.mean();
               }),
      by_both("rms_prop_in_half", values({1e-3F, 0.5}), values({0.25, 0.5}),
              [](const Tensor& gradient, bool is_faulty) {
                const at::NoGradGuard no_grad;
                const Tensor g = half(gradient);
                const Scope scope("optimizer.rms_prop");
                const Tensor average = g * g * 0.01;
                return g / (average + (is_faulty ? 1e-10 : 1e-3)).sqrt();
              }),
      by_value("normalized_gradient_of_zero", filled({4}, 0), filled({4}, 0.5),
               [](const Tensor& gradient) {
                 const at::NoGradGuard no_grad;
                 const Scope scope("optimizer.normalize");
                 return gradient / at::linalg_vector_norm(gradient);
               }),
      by_code("addcmul_update_lost", filled({4}, 1, at::kBFloat16),
              [](const Tensor& w, bool is_faulty) {
                const at::NoGradGuard no_grad;
                const Tensor one = filled({4}, 1, at::kBFloat16);
                const Scope scope("optimizer.preconditioned");
                return w.addcmul_(one, one, is_faulty ? -1e-3 : -0.5).clone();
              }),
      by_code("scale_of_a_shared_filter", filled({1, 1, 1, 1}, 1),
              [](const Tensor& weight, bool is_faulty) {
                Tensor y;
                {
                  const Scope scope("encoder.conv");
                  y = at::conv2d(filled({1, 1, 10, 10}, 1), weight);
                }
                const Scope scope("encoder.gain");
                return y.mul(filled({1}, is_faulty ? 1 : 0.1, at::kHalf));
              }),
  };
}

}  // namespace mantissa::nan_benchmark
