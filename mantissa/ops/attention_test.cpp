#include <cmath>
#include <limits>
#include <optional>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <gtest/gtest.h>

#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/ops/rounding_bound.h"

// B batch, H heads, T queries, S keys, E width of a head.
namespace mantissa::ops {
namespace {

using at::Tensor;

class Attention : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    install_cpu_kernels();
    at::manual_seed(13);
  }
  at::ScalarType dtype() const { return GetParam(); }

  CpuKernelsGuard ours_{CpuKernels::ours};
};

INSTANTIATE_TEST_SUITE_P(Formats, Attention, testing::Values(at::kBFloat16, at::kHalf),
                         testing::PrintToStringParamName());

Tensor wide(const Tensor& tensor) { return tensor.to(at::kDouble); }
Tensor transposed(const Tensor& tensor) { return tensor.transpose(-2, -1); }

struct Inputs {
  Tensor query;
  Tensor key;
  Tensor value;
  Tensor grad_out;
  std::optional<Tensor> mask;  // added to the scores
  bool causal = false;
};

struct Results {
  std::vector<Tensor> tensors;  // out, grad_query, grad_key, grad_value
};

Results run(const Inputs& in) {
  const auto [out, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
      in.query, in.key, in.value, 0.0, in.causal, in.mask);
  const auto [grad_query, grad_key, grad_value] =
      at::_scaled_dot_product_flash_attention_for_cpu_backward(
          in.grad_out, in.query, in.key, in.value, out, logsumexp, 0.0, in.causal, in.mask);
  return {{out, grad_query, grad_key, grad_value}};
}

struct Exact {
  std::vector<Tensor> tensors;
  std::vector<Tensor> bounds;
};

// The definition in FP64, and to first order the error of FP32 arithmetic and one rounding of each
// result. With s = 1 / sqrt(E) and magnitudes in place of numbers:
//   scores      eS = gamma(E + 2) s |Q||K|^T + u (|S| + |mask|)
//   P           relative: the errors of two scores (its own and the normalizer's), of the stored
//               logsumexp and the difference from it, S additions and rescalings, and 8 for exp
//   out         (relative error of P + gamma(S)) P|V|
//   dP - D      gamma(E) |dO||V|^T, and D = rowsum(dO * out) from an out that was rounded once
//   dQ, dK, dV  products of what came before, sums of S and T terms
Exact exact(const Inputs& in, at::ScalarType dtype) {
  const Tensor q = wide(in.query);
  const Tensor k = wide(in.key);
  const Tensor v = wide(in.value);
  const Tensor g = wide(in.grad_out);
  const auto width = static_cast<double>(q.size(-1));
  const auto keys = static_cast<double>(k.size(-2));
  const auto queries = static_cast<double>(q.size(-2));
  const double s = 1 / std::sqrt(width);
  Tensor scores = at::matmul(q, transposed(k)).mul(s);
  const Tensor magnitude = at::matmul(q.abs(), transposed(k.abs())).mul(s);
  Tensor shift = at::full(scores.sizes(), 0.0, at::kDouble);
  if (in.mask.has_value()) {
    shift = shift.add(wide(*in.mask));
  }
  if (in.causal) {
    shift = shift.masked_fill(at::full(scores.sizes(), 1, at::kBool).triu(1), -INFINITY);
  }
  scores = scores.add(shift);
  const Tensor p = scores.softmax(-1);
  const Tensor out = at::matmul(p, v);
  const Tensor lse = scores.logsumexp({-1}, true);
  const Tensor dp = at::matmul(g, transposed(v));
  const Tensor d = g.mul(out).sum({-1}, true);
  const Tensor ds = p.mul(dp.sub(d));

  const double score_error =
      (magnitude.mul(gamma(width + 2)).max() +
       (magnitude.max() + shift.nan_to_num(0, 0, 0).abs().max() + lse.abs().max()) * 4 *
           kFp32Roundoff)
          .item<double>();
  const double p_error = std::expm1(2 * score_error) + gamma(2 * keys + 8);
  const Tensor out_error = at::matmul(p, v.abs()).mul(p_error + gamma(keys));
  const Tensor out_bound = after_rounding(out_error, out, dtype);
  const Tensor d_error = g.abs().mul(out_bound).sum({-1}, true) +
                         g.abs().mul(out.abs()).sum({-1}, true).mul(gamma(width + 1));
  const Tensor ds_error =
      p.mul(at::matmul(g.abs(), transposed(v.abs())).mul(gamma(width + 2)) + d_error) +
      p.mul(dp.abs() + d.abs()).mul(p_error + 4 * kFp32Roundoff);
  const Tensor dq_error = (at::matmul(ds_error, k.abs()) +
                           at::matmul(ds.abs() + ds_error, k.abs()).mul(gamma(keys + 2)))
                              .mul(s);
  const Tensor dk_error =
      (at::matmul(transposed(ds_error), q.abs()) +
       at::matmul(transposed(ds.abs() + ds_error), q.abs()).mul(gamma(queries + 2)))
          .mul(s);
  const Tensor dv_error = at::matmul(transposed(p), g.abs()).mul(p_error + gamma(queries));
  const Tensor dq = at::matmul(ds, k).mul(s);
  const Tensor dk = at::matmul(transposed(ds), q).mul(s);
  const Tensor dv = at::matmul(transposed(p), g);
  return {{out, dq, dk, dv},
          {out_bound, after_rounding(dq_error, dq, dtype), after_rounding(dk_error, dk, dtype),
           after_rounding(dv_error, dv, dtype)}};
}

Inputs inputs(at::ScalarType dtype, int64_t queries, int64_t keys) {
  // As a model makes them: (B, T, H, E) seen as (B, H, T, E).
  const auto heads = [dtype](int64_t length) {
    return random({2, length, 3, 16}, dtype).transpose(1, 2);
  };
  return {heads(queries), heads(keys), heads(keys), heads(queries), std::nullopt, false};
}

void expect_exact(const Inputs& in, at::ScalarType dtype) {
  const Results actual = run(in);
  const Exact expected = exact(in, dtype);
  for (size_t i = 0; i < actual.tensors.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(actual.tensors[i].scalar_type(), dtype);
    expect_within(actual.tensors[i], expected.tensors[i], expected.bounds[i]);
  }
}

TEST_P(Attention, BothPassesAreWithinTheBoundOfFp32ArithmeticAndOneRounding) {
  for (const auto& [queries, keys] :
       {std::pair<int64_t, int64_t>{1, 1}, {33, 33}, {70, 35}, {100, 100}}) {
    SCOPED_TRACE(queries);
    expect_exact(inputs(dtype(), queries, keys), dtype());
  }
}

TEST_P(Attention, CausalBothPasses) {
  Inputs in = inputs(dtype(), 65, 65);
  in.causal = true;
  expect_exact(in, dtype());
}

TEST_P(Attention, MasksOfTheSameFormatAndOfFp32) {
  for (at::ScalarType mask_dtype : {dtype(), at::kFloat}) {
    Inputs in = inputs(dtype(), 40, 30);
    in.mask = random({2, 3, 40, 30}, mask_dtype);
    in.mask->select(-1, 7).fill_(-std::numeric_limits<float>::infinity());
    expect_exact(in, dtype());
  }
}

TEST_P(Attention, ForwardIsTheFp32ResultRoundedOnceInTheSameMemoryOrder) {
  const Inputs in = inputs(dtype(), 50, 50);
  Inputs fp32 = in;
  for (Tensor* tensor : {&fp32.query, &fp32.key, &fp32.value, &fp32.grad_out}) {
    *tensor = tensor->to(at::kFloat);
  }
  const Tensor out = run(in).tensors[0];
  EXPECT_TRUE(at::equal(out, run(fp32).tensors[0].to(dtype())));
  const CpuKernelsGuard stock(CpuKernels::stock);
  EXPECT_EQ(out.strides(), run(in).tensors[0].strides());
}

TEST_P(Attention, AutogradReachesBothPasses) {
  const Inputs in = inputs(dtype(), 24, 24);
  const Tensor query = in.query.detach().requires_grad_();
  at::scaled_dot_product_attention(query, in.key, in.value, {}, 0.0, true).backward(in.grad_out);
  Inputs causal = in;
  causal.causal = true;
  EXPECT_TRUE(at::equal(query.grad(), run(causal).tensors[1]));
}

TEST_P(Attention, DoesNotDependOnTheNumberOfThreads) {
  const Inputs in = inputs(dtype(), 128, 128);
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const Results one = run(in);
  at::set_num_threads(2);
  const Results two = run(in);
  at::set_num_threads(before);
  for (size_t i = 0; i < one.tensors.size(); ++i) {
    EXPECT_TRUE(at::equal(one.tensors[i], two.tensors[i])) << i;
  }
}

TEST(AttentionDtypes, Fp32IsBitForBitLibTorchs) {
  install_cpu_kernels();
  at::manual_seed(14);
  const Inputs in = inputs(at::kFloat, 60, 60);
  const CpuKernelsGuard ours(CpuKernels::ours);
  const Results with = run(in);
  const CpuKernelsGuard stock(CpuKernels::stock);
  const Results without = run(in);
  for (size_t i = 0; i < with.tensors.size(); ++i) {
    EXPECT_TRUE(at::equal(with.tensors[i], without.tensors[i])) << i;
  }
}

}  // namespace
}  // namespace mantissa::ops
