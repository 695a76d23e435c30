// Sums of products beyond 65504, the largest number of FP16.

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bilinear.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/conv3d.h>
#include <ATen/ops/conv_transpose1d.h>
#include <ATen/ops/conv_transpose2d.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/linear.h>

#include "case.h"
#include "mantissa/tensor/scope.h"

namespace mantissa::nan_benchmark {

using at::Tensor;
using tensor::Scope;

namespace {

// 1024 products of 8 with 8 are 65536.
Tensor eights(at::IntArrayRef sizes) { return filled(sizes, 8, at::kHalf); }

std::vector<Case> matrix_cases() {
  const Tensor large = filled({1, 1024}, 8);
  const Tensor small = filled({1, 1024}, 1);
  return {
      by_value("mm", large, small,
               [](const Tensor& x) {
                 const Scope scope("feed_forward.down");
                 return half(x).mm(eights({1024, 1}));
               }),
      by_value("linear_in_region", large, small,
               [](const Tensor& x) {
                 Tensor y;
                 {
                   const Scope scope("feed_forward.down");
                   y = at::linear(x, filled({2, 1024}, 8));
                 }
                 const Scope scope("head");
                 return at::linear(y, filled({1, 2}, 1e-3));
               }),
      by_value("linear_operand_cast", filled({1, 4}, 70000), filled({1, 4}, 7),
               [](const Tensor& x) {
                 const Scope scope("encoder.first");
                 return at::linear(x, filled({2, 4}, 1e-3));
               }),
      by_value("linear_bias", filled({2}, 50000), filled({2}, 50),
               [](const Tensor& x) {
                 const Scope scope("head");
                 return at::linear(filled({1, 100}, 20, at::kHalf), filled({2, 100}, 20, at::kHalf),
                                   half(x));
               }),
      by_value("matmul_batched", filled({2, 4, 1024}, 8), filled({2, 4, 1024}, 1),
               [](const Tensor& x) {
                 const Scope scope("blocks.2.project");
                 return half(x).matmul(eights({1024, 2}));
               }),
      by_value("bmm", filled({2, 4, 1024}, 8), filled({2, 4, 1024}, 1),
               [](const Tensor& x) {
                 const Scope scope("mix");
                 return half(x).bmm(eights({2, 1024, 3}));
               }),
      by_value("baddbmm", filled({2, 4, 1024}, 8), filled({2, 4, 1024}, 1),
               [](const Tensor& x) {
                 const Scope scope("attention.scores");
                 return at::baddbmm(filled({2, 4, 3}, 1, at::kHalf), half(x), eights({2, 1024, 3}));
               }),
      by_value("addmm", large, small,
               [](const Tensor& x) {
                 const Scope scope("feed_forward.up");
                 return at::addmm(filled({2}, 1, at::kHalf), half(x), eights({1024, 2}));
               }),
      by_value("mv", filled({2, 1024}, 8), filled({2, 1024}, 1),
               [](const Tensor& x) {
                 const Scope scope("pool.attend");
                 return half(x).mv(eights({1024}));
               }),
      by_value("dot", filled({1024}, 8), filled({1024}, 1),
               [](const Tensor& x) {
                 const Scope scope("similarity");
                 return half(x).dot(eights({1024}));
               }),
      by_value("einsum", large, small,
               [](const Tensor& x) {
                 const Scope scope("mix.channels");
                 return at::einsum("ij,jk->ik", {half(x), eights({1024, 2})});
               }),
      by_value("bilinear", filled({1, 16}, 16), filled({1, 16}, 0.1),
               [](const Tensor& x) {
                 const Scope scope("pair");
                 return at::bilinear(half(x), filled({1, 16}, 16, at::kHalf),
                                     filled({1, 16, 16}, 16, at::kHalf), {});
               }),
      by_value("attention_scores_unscaled", filled({1, 2, 4, 64}, 40), filled({1, 2, 4, 64}, 1),
               [](const Tensor& x) {
                 const Tensor q = half(x);
                 Tensor scores;
                 {
                   const Scope scope("attention.scores");
                   scores = q.matmul(q.transpose(-2, -1));
                 }
                 const Scope scope("attention.weights");
                 return (scores * 0.125).softmax(-1);
               }),
  };
}

std::vector<Case> convolution_cases() {
  return {
      by_value("conv1d", filled({1, 64, 16}, 8), filled({1, 64, 16}, 1),
               [](const Tensor& x) {
                 const Scope scope("stem.conv");
                 return at::conv1d(half(x), eights({2, 64, 16}));
               }),
      by_value("conv1d_in_region", filled({1, 64, 16}, 8), filled({1, 64, 16}, 1),
               [](const Tensor& x) {
                 const Scope scope("tower.3.conv");
                 return at::conv1d(x, filled({2, 64, 16}, 8));
               }),
      by_value("conv2d", filled({1, 128, 3, 3}, 8), filled({1, 128, 3, 3}, 1),
               [](const Tensor& x) {
                 const Scope scope("stage2.conv");
                 return at::conv2d(half(x), eights({2, 128, 3, 3}));
               }),
      by_value("conv3d", filled({1, 64, 3, 3, 3}, 8), filled({1, 64, 3, 3, 3}, 1),
               [](const Tensor& x) {
                 const Scope scope("volume.conv");
                 return at::conv3d(half(x), eights({1, 64, 3, 3, 3}));
               }),
      by_value(
          "conv1d_depthwise", filled({1, 4, 16}, 70), filled({1, 4, 16}, 1),
          [](const Tensor& x) {
            const Scope scope("mixer.depthwise");
            const std::vector<int64_t> one = {1};
            const std::vector<int64_t> zero = {0};
            return at::conv1d(half(x), filled({4, 1, 16}, 70, at::kHalf), {}, one, zero, one, 4);
          }),
      by_value("conv_transpose1d", filled({1, 1024, 1}, 8), filled({1, 1024, 1}, 1),
               [](const Tensor& x) {
                 const Scope scope("decoder.up");
                 return at::conv_transpose1d(half(x), eights({1024, 1, 2}));
               }),
      by_value("conv_transpose2d", filled({1, 1024, 1, 1}, 8), filled({1, 1024, 1, 1}, 1),
               [](const Tensor& x) {
                 const Scope scope("decoder.up");
                 return at::conv_transpose2d(half(x), eights({1024, 1, 2, 2}));
               }),
  };
}

std::vector<Case> recurrence_cases() {
  return {
      // States of 4, 8, 16, ...: the 15th is 65536.
      by_value("recurrence_doubles", filled({1, 1}, 2), filled({1, 1}, 1e-3),
               [](const Tensor& x) {
                 Tensor state = half(x);
                 for (int i = 1; i <= 15; ++i) {
                   const Scope scope("recurrence." + std::to_string(i));
                   state = state.mm(filled({1, 1}, 2, at::kHalf));
                 }
                 return state;
               }),
  };
}

}  // namespace

std::vector<Case> product_cases() {
  std::vector<Case> cases = matrix_cases();
  for (const std::vector<Case>& more : {convolution_cases(), recurrence_cases()}) {
    cases.insert(cases.end(), more.begin(), more.end());
  }
  return cases;
}

}  // namespace mantissa::nan_benchmark
