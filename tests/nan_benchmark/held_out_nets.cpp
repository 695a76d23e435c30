// Held out: convolutional nets, recurrent cells, attention.

#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_weight_norm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_bag.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/upsample_linear1d.h>
#include <ATen/ops/where.h>

#include "case.h"
#include "mantissa/base/error.h"
#include "mantissa/tensor/scope.h"

namespace mantissa::nan_benchmark {

using at::Tensor;
using tensor::Scope;

namespace {

std::vector<Case> nets() {
  const Tensor checkered = values({3, -3, 3, -3}).view({1, 1, 2, 2});
  return {
      by_value("unet_skip_sum", filled({1, 1, 2, 2}, 200), filled({1, 1, 2, 2}, 2),
               [](const Tensor& x) {
                 Tensor y;
                 {
                   const Scope scope("unet.up0.conv");
                   y = at::conv2d(x, filled({1, 1, 1, 1}, 200));
                 }
                 const Scope scope("unet.up0.skip");
                 return y + y;
               }),
      by_value("squeeze_by_sum_pool", filled({1, 1, 32, 32}, 10), filled({1, 1, 32, 32}, 0.1),
               [](const Tensor& x) {
                 Tensor y;
                 {
                   const Scope scope("excite.conv");
                   y = at::conv2d(x, filled({1, 1, 1, 1}, 10));
                 }
                 const Scope scope("excite.squeeze");
                 return at::avg_pool2d(y, {32, 32}, {}, 0, false, true, /*divisor_override=*/1);
               }),
      by_value("style_variance_by_products", checkered * 100, checkered,
               [](const Tensor& x) {
                 Tensor y;
                 {
                   const Scope scope("style.conv");
                   y = at::conv2d(x, filled({1, 1, 1, 1}, 1));
                 }
                 const Scope scope("style.norm");
                 return y / ((y * y).mean({2, 3}, true) + 1e-3).sqrt();
               }),
      by_code("upsample_linear_gradient", filled({1, 1, 4}, 1),
              [](const Tensor& x, bool is_faulty) {
                Tensor y;
                {
                  const Scope scope("decoder.upsample");
                  y = at::upsample_linear1d(x, {64}, false);
                }
                const Scope scope("decoder.gain");
                return y.mul(filled({1}, is_faulty ? 10000 : 1, at::kHalf));
              }),
      by_code("conv2d_weight_gradient_of_large_image", filled({1, 1, 1, 1}, 1),
              [](const Tensor& weight, bool is_faulty) {
                Tensor y;
                {
                  const Scope scope("stem.conv");
                  y = at::conv2d(filled({1, 1, 64, 64}, 1), weight);
                }
                const Scope scope("stem.gain");
                return at::relu(y).mul(filled({1}, is_faulty ? 100 : 0.1, at::kHalf));
              }),
      by_code("folded_batch_norm_in_half", values({0, 1}),
              [](const Tensor& x, bool is_faulty) {
                const at::NoGradGuard no_grad;
                const Tensor variance = half(x);
                const Scope scope("fold.conv1");
                const Tensor root = (variance + (is_faulty ? 1e-12 : 1e-3)).sqrt();
                return filled({2}, 1, at::kHalf) / root;
              }),
      by_value("weight_norm_of_dead_filter", values({0, 0, 1, 2}).view({2, 2}), filled({2, 2}, 1),
               [](const Tensor& v) {
                 Tensor w;
                 {
                   const Scope scope("stem.weight_norm");
                   w = at::_weight_norm(v, filled({2, 1}, 1), 0);
                 }
                 const Scope scope("stem");
                 return w.mm(filled({2, 1}, 1));
               }),
      by_code("layer_scale_underflow", filled({1, 4}, 1),
              [](const Tensor& x, bool is_faulty) {
                Tensor y;
                {
                  const Scope scope("blocks.0.mlp");
                  y = at::linear(x, filled({4, 4}, 1));
                }
                const Scope scope("blocks.0.layer_scale");
                return y * filled({4}, is_faulty ? 1e-8 : 0.1);
              }),
      by_value("embedding_bag_of_many_genes", filled({4, 2}, 40), filled({4, 2}, 0.5),
               [](const Tensor& x) {
                 const Tensor table = half(x);
                 const Scope scope("bag.genes");
                 constexpr int64_t kSum = 0;
                 return std::get<0>(at::embedding_bag(table, filled({2000}, 1, at::kLong),
                                                      filled({1}, 0, at::kLong), false, kSum));
               }),
  };
}

std::vector<Case> cells() {
  return {
      by_value("irnn_rollout", filled({1, 1}, 1), filled({1, 1}, 1e-3),
               [](const Tensor& x) {
                 const at::NoGradGuard no_grad;
                 Tensor state = x;
                 for (int i = 0; i < 16; ++i) {
                   const Scope scope(concat("cell.", i));
                   state = at::relu(at::linear(state, filled({1, 1}, 2)));
                 }
                 return state;
               }),
      by_code("backprop_through_time", filled({1, 1}, 1e-4),
              [](const Tensor& x, bool is_faulty) {
                Tensor state = x;
                for (int i = 0; i < 12; ++i) {
                  const Scope scope(concat("cell.", i));
                  state = at::linear(state, filled({1, 1}, is_faulty ? 3 : 1));
                }
                return state;
              }),
      by_code("parallel_scan_of_gates", filled({40}, 1),
              [](const Tensor& x, bool is_faulty) {
                Tensor decay;
                {
                  const Scope scope("scan.decay");
                  decay = filled({40}, is_faulty ? 0.5 : 0.9, at::kHalf).cumprod(0);
                }
                const Tensor input = half(x);
                const Scope scope("scan.states");
                return decay * (input / decay).cumsum(0);
              }),
  };
}

// Distances of 0 and 1 are buckets of their own, larger ones share those of their logarithm.
Tensor bucket_of(const Tensor& distance, bool is_faulty) {
  const Tensor far = (distance.to(at::kFloat) / 2.0).log().mul(2.0).to(at::kLong).clamp_max(1) + 2;
  return is_faulty ? far : at::where(distance.lt(2), distance, far);
}

std::vector<Case> attention() {
  const double infinity = std::numeric_limits<double>::infinity();
  return {
      by_value("einsum_scores_in_region", filled({1, 2, 4, 64}, 40), filled({1, 2, 4, 64}, 1),
               [](const Tensor& x) {
                 Tensor scores;
                 {
                   const Scope scope("attention.scores");
                   scores = at::einsum("bhid,bhjd->bhij", {x, x.detach()});
                 }
                 const Scope scope("attention.weights");
                 return (scores * 0.125).softmax(-1);
               }),
      by_code("alibi_in_bf16", filled({1}, 1),
              [](const Tensor& x, bool is_faulty) {
                const Scope scope("attention.alibi");
                const Tensor distance = at::arange(is_faulty ? 2048 : 128, at::kLong);
                return (x + distance.to(at::kBFloat16).mul(-0.5)).softmax(-1);
              }),
      by_code("rotary_positions_beyond_fp16", filled({1}, 1e-4),
              [](const Tensor& x, bool is_faulty) {
                Tensor positions;
                {
                  const Scope scope("rotary.positions");
                  positions = at::arange(is_faulty ? 70000 : 1000, at::kHalf);
                }
                const Scope scope("rotary.angles");
                return (positions * x).cos();
              }),
      by_value("linear_attention_without_features", filled({1, 4}, -1), filled({1, 4}, 1),
               [](const Tensor& x) {
                 Tensor q;
                 {
                   const Scope scope("attention.features");
                   q = at::relu(at::linear(x, filled({4, 4}, 1)));
                 }
                 const Scope scope("attention.normalize");
                 return q.matmul(filled({4, 2}, 1)) / q.matmul(filled({4, 1}, 1));
               }),
      // The logarithm of a distance of 0 is no fault of the twin, which does not choose it.
      by_code("bucket_of_distance_zero", filled({4, 2}, 1),
              [](const Tensor& table, bool is_faulty) {
                const Scope scope("attention.relative_bias");
                return at::embedding(table, bucket_of(at::arange(4, at::kLong), is_faulty));
              }),
      // Nor is a row that is hidden whole, where what comes of it is replaced by 0.
      by_code("hidden_row_without_replacement", filled({2, 4}, 1),
              [infinity](const Tensor& x, bool is_faulty) {
                Tensor hidden = filled({2, 4}, 0, at::kBool);
                hidden.select(0, 0).fill_(true);
                const Scope scope("attention.weights");
                const Tensor weights = x.masked_fill(hidden, -infinity).softmax(-1);
                return is_faulty ? weights : at::nan_to_num(weights);
              }),
  };
}

}  // namespace

std::vector<Case> held_out_nets() { return joined({nets(), cells(), attention()}); }

}  // namespace mantissa::nan_benchmark
