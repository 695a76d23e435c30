#include <cmath>
#include <limits>
#include <optional>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/ops/kernel_switch_testing.h"
#include "mantissa/ops/rounding_bound.h"
#include "mantissa/ops/simd_target_testing.h"

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

// As a model makes them: (B, T, H, E) seen as (B, H, T, E).
Tensor heads(at::ScalarType dtype, int64_t length, int64_t width) {
  return random({2, length, 3, width}, dtype).transpose(1, 2);
}

Inputs inputs(at::ScalarType dtype, int64_t queries, int64_t keys, int64_t width = 16) {
  return {heads(dtype, queries, width),
          heads(dtype, keys, width),
          heads(dtype, keys, width),
          heads(dtype, queries, width),
          std::nullopt,
          false};
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
       {std::pair<int64_t, int64_t>{1, 1}, {33, 33}, {70, 35}, {100, 200}}) {
    SCOPED_TRACE(queries);
    expect_exact(inputs(dtype(), queries, keys), dtype());
  }
}

TEST_P(Attention, HeadsOfAnyWidth) {
  for (int64_t width : {1, 7, 32, 65}) {
    SCOPED_TRACE(width);
    expect_exact(inputs(dtype(), 40, 37, width), dtype());
  }
}

TEST_P(Attention, CausalBothPasses) {
  for (const auto& [queries, keys] : {std::pair<int64_t, int64_t>{65, 65}, {20, 90}, {90, 20}}) {
    SCOPED_TRACE(queries);
    Inputs in = inputs(dtype(), queries, keys);
    in.causal = true;
    expect_exact(in, dtype());
  }
}

// More than one part of queries and of keys.
TEST_P(Attention, LongSequences) {
  for (bool causal : {false, true}) {
    SCOPED_TRACE(causal);
    Inputs in = inputs(dtype(), 1100, 1050, 8);
    for (Tensor* tensor : {&in.query, &in.key, &in.value, &in.grad_out}) {
      *tensor = tensor->narrow(0, 0, 1).narrow(1, 0, 1);
    }
    in.causal = causal;
    expect_exact(in, dtype());
  }
}

TEST_P(Attention, EveryInstructionSet) {
  Inputs in = inputs(dtype(), 45, 45, 20);
  in.causal = true;
  on_every_simd_target([&] { expect_exact(in, dtype()); });
}

TEST_P(Attention, InputsOfAnyStrides) {
  Inputs in = inputs(dtype(), 40, 40);
  const Results expected = run(in);
  const auto same = [&](const char* what) {
    const Results actual = run(in);
    for (size_t i = 0; i < actual.tensors.size(); ++i) {
      EXPECT_TRUE(at::equal(actual.tensors[i], expected.tensors[i])) << what << i;
    }
  };
  const auto remake = [&](const auto& layout) {
    for (Tensor* tensor : {&in.query, &in.key, &in.value, &in.grad_out}) {
      *tensor = layout(*tensor);
    }
  };
  remake([](const Tensor& t) { return t.contiguous(); });
  same("contiguous");
  remake([](const Tensor& t) { return t.transpose(2, 3).contiguous().transpose(2, 3); });
  same("queries side by side");
  remake([](const Tensor& t) {
    const Tensor spread = at::empty({2, 3, 40, 32}, t.options()).slice(3, 1, 32, 2);
    return spread.copy_(t);
  });
  same("every second number, misaligned");
}

TEST_P(Attention, MasksOfTheSameFormatAndOfFp32) {
  for (at::ScalarType mask_dtype : {dtype(), at::kFloat}) {
    Inputs in = inputs(dtype(), 40, 30);
    in.mask = random({2, 3, 40, 30}, mask_dtype);
    in.mask->select(-1, 7).fill_(-std::numeric_limits<float>::infinity());
    expect_exact(in, dtype());
  }
}

TEST_P(Attention, MasksThatAreExpanded) {
  const std::vector<std::vector<int64_t>> shapes = {
      {40, 30}, {1, 30}, {40, 1}, {1, 1}, {2, 1, 1, 30}, {1, 3, 40, 1}, {1, 1, 40, 30}};
  for (const std::vector<int64_t>& shape : shapes) {
    SCOPED_TRACE(testing::PrintToString(shape));
    Inputs in = inputs(dtype(), 40, 30);
    in.mask = random(shape, dtype());
    expect_exact(in, dtype());
    // The same, the other way round in memory.
    in.mask = in.mask->transpose(-2, -1).contiguous().transpose(-2, -1);
    expect_exact(in, dtype());
  }
}

TEST_P(Attention, AQueryThatSeesNothingGetsZeros) {
  Inputs in = inputs(dtype(), 40, 30);
  in.mask = at::zeros({40, 30});
  in.mask->select(0, 33).fill_(-std::numeric_limits<float>::infinity());
  const Results hidden = run(in);
  EXPECT_EQ(hidden.tensors[0].select(2, 33).count_nonzero().item<int64_t>(), 0);
  EXPECT_EQ(hidden.tensors[1].select(2, 33).count_nonzero().item<int64_t>(), 0);
  for (const Tensor& tensor : hidden.tensors) {
    EXPECT_TRUE(tensor.isfinite().all().item<bool>());
  }
  const CpuKernelsGuard stock(CpuKernels::stock);
  EXPECT_EQ(run(in).tensors[0].select(2, 33).count_nonzero().item<int64_t>(), 0);
}

TEST_P(Attention, NanAndInfinityReachWhatTheyMeet) {
  for (double value : {NAN, INFINITY}) {
    Inputs in = inputs(dtype(), 40, 40);
    in.query = in.query.clone();
    in.query.select(2, 5).fill_(value);
    const Results results = run(in);
    const Tensor rows = results.tensors[0].isnan().any(-1);
    EXPECT_TRUE(rows.select(2, 5).all().item<bool>());
    EXPECT_EQ(rows.sum().item<int64_t>(), 6) << "other queries are as they were";
    EXPECT_TRUE(results.tensors[2].isnan().all().item<bool>());
  }
}

TEST_P(Attention, NothingToAttendTo) {
  EXPECT_EQ(run(inputs(dtype(), 0, 5)).tensors[2].count_nonzero().item<int64_t>(), 0);
  EXPECT_EQ(run(inputs(dtype(), 5, 0)).tensors[0].count_nonzero().item<int64_t>(), 0);
  Inputs in = inputs(dtype(), 5, 5);
  for (Tensor* tensor : {&in.query, &in.key, &in.value, &in.grad_out}) {
    *tensor = tensor->narrow(0, 0, 0);
  }
  EXPECT_EQ(run(in).tensors[0].sizes(), in.query.sizes());
}

TEST_P(Attention, WhatLibTorchRefusesItSaysItself) {
  Inputs in = inputs(dtype(), 5, 5);
  in.value = heads(dtype(), 5, 8);
  EXPECT_NE(failure_of([&] { run(in); }).find("same head size"), std::string::npos);
}

TEST_P(Attention, ResultsHaveLibTorchsMemoryOrder) {
  const Inputs in = inputs(dtype(), 50, 50);
  const Results ours = run(in);
  const CpuKernelsGuard stock(CpuKernels::stock);
  const Results theirs = run(in);
  for (size_t i = 0; i < ours.tensors.size(); ++i) {
    EXPECT_EQ(ours.tensors[i].strides(), theirs.tensors[i].strides()) << i;
  }
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

TEST_P(Attention, EachCallIsWhollyOneOrTheOtherWhileTheSwitchMoves) {
  const auto inputs_of = [this](uint64_t seed) {
    at::manual_seed(seed);
    const auto number = [this] { return random({1, 2, 40, 32}, dtype()); };
    return Inputs{number(), number(), number(), number(), {}, true};
  };
  EXPECT_TRUE(is_wholly_ours_or_stock([&](uint64_t seed) {
    return [in = inputs_of(seed)] {
      const auto [out, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
          in.query, in.key, in.value, 0.0, in.causal);
      return Tensors{out, logsumexp};
    };
  }));
  EXPECT_TRUE(is_wholly_ours_or_stock([&](uint64_t seed) {
    const Inputs in = inputs_of(seed);
    const auto forward =
        at::_scaled_dot_product_flash_attention_for_cpu(in.query, in.key, in.value, 0.0, in.causal);
    return [in, forward] {
      const auto [grad_query, grad_key, grad_value] =
          at::_scaled_dot_product_flash_attention_for_cpu_backward(
              in.grad_out, in.query, in.key, in.value, std::get<0>(forward), std::get<1>(forward),
              0.0, in.causal);
      return Tensors{grad_query, grad_key, grad_value};
    };
  }));
}

}  // namespace
}  // namespace mantissa::ops
