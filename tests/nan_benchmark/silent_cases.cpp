// What stays finite and is wrong all the same, and steps that 16 bits cannot run.

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/binary_cross_entropy.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/fft_rfft.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/mse_loss.h>

#include "case.h"
#include "mantissa/tensor/scope.h"

namespace mantissa::nan_benchmark {

using at::Tensor;
using tensor::Scope;

namespace {

std::vector<Case> gradients() {
  const Tensor ones = filled({4, 4}, 1);
  return {
      // Without a loss scale: below 2^-25, half of the smallest number of FP16.
      by_code("gradient_dead_by_underflow", ones,
              [](const Tensor& x, bool is_faulty) {
                Tensor y;
                {
                  const Scope scope("head");
                  y = x.mm(filled({4, 4}, 1));
                }
                const Scope scope("loss.weight");
                return y.to(at::kFloat) * (is_faulty ? 1e-8 : 1e-2);
              }),
      by_code("gradient_subnormal", ones,
              [](const Tensor& x, bool is_faulty) {
                Tensor y;
                {
                  const Scope scope("head");
                  y = x.mm(filled({4, 4}, is_faulty ? 1e-3 : 1));
                }
                const Scope scope("loss.weight");
                return y.mul(filled({1}, is_faulty ? 1e-5 : 1e-2, at::kHalf));
              }),
      by_code("embedding_gradient_stops_at_256", filled({2, 1}, 1),
              [](const Tensor& table, bool is_faulty) {
                const Scope scope("embedding");
                return at::embedding(table, filled({is_faulty ? 1000 : 100}, 0, at::kLong));
              }),
      by_code("microbatches_add_up_in_bf16", filled({4}, 1, at::kBFloat16),
              [](const Tensor& w, bool is_faulty) {
                for (int i = 0; i < (is_faulty ? 2 : 1); ++i) {
                  const Scope scope("head");
                  w.mul(w).sum().backward();
                }
                return Tensor();
              }),
  };
}

std::vector<Case> sums_and_positions() {
  return {
      by_code("positions_in_bf16", filled({1}, 1),
              [](const Tensor& x, bool is_faulty) {
                const Scope scope("positions");
                return at::arange(is_faulty ? 2048 : 200, at::kBFloat16) * x;
              }),
      by_code("positions_rounded_by_region", filled({1, 16}, 0.01),
              [](const Tensor& frequencies, bool is_faulty) {
                const Tensor positions = at::arange(is_faulty ? 2048 : 200, at::kFloat);
                const Scope scope("rotary.angles");
                return positions.unsqueeze(1).matmul(frequencies).cos();
              }),
      by_code("index_add_stops_at_256", filled({1000}, 1),
              [](const Tensor& x, bool is_faulty) {
                const int64_t num = is_faulty ? 1000 : 100;
                const Scope scope("pool.by_gene");
                return at::index_add(filled({2}, 0, at::kBFloat16), 0, filled({num}, 1, at::kLong),
                                     bfloat(x).narrow(0, 0, num));
              }),
      by_code("offsets_cumulated_in_bf16", filled({1000}, 1),
              [](const Tensor& x, bool is_faulty) {
                const Scope scope("ragged.offsets");
                return bfloat(x).narrow(0, 0, is_faulty ? 1000 : 100).cumsum(0);
              }),
  };
}

std::vector<Case> losses_and_statistics() {
  return {
      by_code("mse_in_fp16", filled({4}, 1),
              [](const Tensor& x, bool is_faulty) {
                const Tensor y = is_faulty ? half(x) : x;
                const Scope scope("loss.mse");
                return at::mse_loss(y, y.detach() * 0.5);
              }),
      by_value("bce_of_saturated_probability", filled({4}, 30), filled({4}, 2),
               [](const Tensor& x) {
                 const Tensor p = x.sigmoid();
                 const Scope scope("loss.bce");
                 return at::binary_cross_entropy(p, filled({4}, 0));
               }),
      by_code("batch_norm_statistics_in_bf16", values({1, 2, 3, 4}).view({4, 1}),
              [](const Tensor& x, bool is_faulty) {
                const at::ScalarType dtype = is_faulty ? at::kBFloat16 : at::kFloat;
                const Scope scope("stem.norm");
                return at::batch_norm(x.to(dtype), filled({1}, 1, dtype), filled({1}, 0, dtype),
                                      filled({1}, 0, dtype), filled({1}, 1, dtype), true, 0.1, 1e-5,
                                      false);
              }),
      by_value("batch_norm_of_one_sample", values({1}).view({1, 1}), values({1, 2}).view({2, 1}),
               [](const Tensor& x) {
                 const Scope scope("head.norm");
                 return at::batch_norm(x, {}, {}, filled({1}, 0), filled({1}, 1), true, 0.1, 1e-5,
                                       false);
               }),
  };
}

std::vector<Case> transforms() {
  return {
      by_code("half_fft_of_length_12", filled({12}, 1),
              [](const Tensor& x, bool is_faulty) {
                const Tensor y = is_faulty ? half(x) : x;
                const Scope scope("long_filter.fft");
                return at::fft_rfft(y).abs();
              }),
      by_code("bf16_fft", filled({8}, 1),
              [](const Tensor& x, bool is_faulty) {
                const Tensor y = is_faulty ? bfloat(x) : x;
                const Scope scope("long_filter.fft");
                return at::fft_rfft(y).abs();
              }),
  };
}

}  // namespace

std::vector<Case> silent_cases() {
  std::vector<Case> cases = gradients();
  for (const std::vector<Case>& more :
       {sums_and_positions(), losses_and_statistics(), transforms()}) {
    cases.insert(cases.end(), more.begin(), more.end());
  }
  return cases;
}

}  // namespace mantissa::nan_benchmark
