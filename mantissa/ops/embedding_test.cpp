#include "mantissa/ops/embedding.h"

#include <algorithm>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/ops/rounding_bound.h"
#include "mantissa/ops/simd_target_testing.h"

// V rows of D numbers, N positions.
namespace mantissa::ops {
namespace {

using at::ScalarType;
using at::Tensor;

Tensor gradient(const Tensor& table_in, const Tensor& indices, const Tensor& grad_out,
                int64_t padding_idx = -1) {
  const Tensor table = table_in.detach().requires_grad_();
  const Tensor out = ops::embedding(table, indices, padding_idx, grad_out.scalar_type());
  return torch::autograd::grad({out}, {table}, {grad_out})[0];
}

// The sums as they are defined, one number after the other: FP32.
Tensor reference_sums(const Tensor& indices_in, const Tensor& grad_out, int64_t rows) {
  const Tensor indices = indices_in.to(at::kLong).flatten();
  const int64_t width = grad_out.size(-1);
  const Tensor gradients = grad_out.to(at::kFloat).contiguous().view({-1, width});
  Tensor result = at::zeros({rows, width}, at::kFloat);
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<int64_t> uses;
    for (int64_t i = 0; i < indices.numel(); ++i) {
      if (indices.const_data_ptr<int64_t>()[i] == row) {
        uses.push_back(i);
      }
    }
    for (int64_t d = 0; d < width; ++d) {
      float sum = 0;
      for (size_t first = 0; first < uses.size(); first += 256) {
        float part = 0;
        for (size_t i = first; i < std::min(uses.size(), first + 256); ++i) {
          part += gradients.const_data_ptr<float>()[uses[i] * width + d];
        }
        sum = first == 0 ? part : sum + part;
      }
      result.mutable_data_ptr<float>()[row * width + d] = sum;
    }
  }
  return result;
}

class Embedding : public testing::TestWithParam<ScalarType> {
 protected:
  void SetUp() override { at::manual_seed(51); }
  static ScalarType dtype() { return GetParam(); }  // of the table

  struct Case {
    Tensor table;
    Tensor indices;
    Tensor grad_out;
  };
  static Case make(int64_t rows, int64_t width, int64_t positions, ScalarType result) {
    return {random({rows, width}, dtype()), at::randint(rows, {positions}, at::kLong),
            random({positions, width}, result)};
  }
};

INSTANTIATE_TEST_SUITE_P(Formats, Embedding, testing::Values(at::kFloat, at::kBFloat16, at::kHalf),
                         testing::PrintToStringParamName());

TEST_P(Embedding, RowsAreThoseOfTheTableRoundedToTheDtype) {
  const Tensor table = random({5, 33}, dtype());
  const Tensor indices = at::tensor({4, 0, 3, 3, 1, 2}, at::kLong).view({3, 2});
  const Tensor expected = table.index_select(0, indices.flatten()).view({3, 2, 33});
  for (const ScalarType result : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const Tensor out = ops::embedding(table, indices, -1, result);
    EXPECT_TRUE(at::equal(out, expected.to(result))) << result;
  }
  EXPECT_EQ(ops::embedding(table, indices).scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(ops::embedding(table, indices.to(at::kInt)), expected.to(at::kFloat)));
  EXPECT_TRUE(at::equal(ops::embedding(table, indices[1][1]), table[3].to(at::kFloat)));
}

TEST_P(Embedding, GradientsAreTheReferencesBitForBit) {
  for (const ScalarType result : {at::kFloat, dtype()}) {
    for (const auto& [rows, width, positions] :
         {std::tuple{1, 7, 256}, {1, 7, 257}, {3, 1, 1000}, {12, 64, 5000}, {700, 33, 900}}) {
      const Case c = make(rows, width, positions, result);
      const Tensor actual = gradient(c.table, c.indices, c.grad_out);
      EXPECT_EQ(actual.scalar_type(), dtype());
      EXPECT_TRUE(at::equal(actual, reference_sums(c.indices, c.grad_out, rows).to(dtype())))
          << rows << " " << width << " " << positions;
    }
  }
}

TEST_P(Embedding, EveryInstructionSet) {
  const Case c = make(5, 37, 2000, dtype());
  const Tensor expected = reference_sums(c.indices, c.grad_out, 5).to(dtype());
  on_every_simd_target(
      [&] { EXPECT_TRUE(at::equal(gradient(c.table, c.indices, c.grad_out), expected)); });
}

// The sum of n numbers passes 256 roundings in a piece and one for each piece, and at last the one
// to the dtype.
TEST_P(Embedding, GradientsAreWithinTheBoundOfFp32SumsAndOneRounding) {
  const Case c = make(4, 16, 20000, dtype());
  const Tensor wide = c.grad_out.to(at::kDouble);
  const Tensor exact = at::zeros({4, 16}, at::kDouble).index_add(0, c.indices, wide);
  const Tensor magnitude = at::zeros({4, 16}, at::kDouble).index_add(0, c.indices, wide.abs());
  expect_within(gradient(c.table, c.indices, c.grad_out), exact,
                sum_bound(exact, magnitude, 256 + 20000 / 256.0, dtype()));
}

// In BF16 256 + 1 is 256, in FP16 2048 + 1 is 2048.
TEST_P(Embedding, SumsOfManyGradientsDoNotStop) {
  constexpr int64_t kUses = 30000;
  const Tensor table = at::zeros({3, 2}, dtype());
  const Tensor indices = at::ones({kUses}, at::kLong);
  const Tensor ones = at::ones({kUses, 2}, dtype());
  const Tensor ours = gradient(table, indices, ones);
  EXPECT_TRUE(at::equal(ours[1], at::full({2}, kUses, dtype())));
  EXPECT_EQ(ours[0].count_nonzero().item<int64_t>() + ours[2].count_nonzero().item<int64_t>(), 0);
  const Tensor leaf = table.detach().requires_grad_();
  at::embedding(leaf, indices).backward(ones);
  const double stop = dtype() == at::kBFloat16 ? 256
                      : dtype() == at::kHalf   ? 2048
                                               : static_cast<double>(kUses);
  EXPECT_EQ(leaf.grad()[1][0].item<double>(), stop) << "LibTorch's";
}

TEST_P(Embedding, ThreadsAndStridesDoNotMatter) {
  const Case c = make(6, 50, 4000, dtype());
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const Tensor one = gradient(c.table, c.indices, c.grad_out);
  const Tensor rows = ops::embedding(c.table, c.indices);
  at::set_num_threads(3);
  const Tensor strided = at::empty({4000, 3}, at::kLong).select(1, 1).copy_(c.indices);
  const Tensor table = c.table.t().contiguous().t();
  const Tensor three = gradient(table, strided, c.grad_out.t().contiguous().t());
  EXPECT_TRUE(at::equal(ops::embedding(table, strided), rows));
  at::set_num_threads(before);
  EXPECT_TRUE(at::equal(one, three));
}

TEST_P(Embedding, ThePaddingGetsNoGradient) {
  const Case c = make(4, 9, 3000, dtype());
  const Tensor expected = reference_sums(c.indices, c.grad_out, 4);
  expected[2].zero_();
  EXPECT_TRUE(at::equal(gradient(c.table, c.indices, c.grad_out, 2), expected.to(dtype())));
  EXPECT_TRUE(at::equal(ops::embedding(c.table, c.indices, 2), ops::embedding(c.table, c.indices)));
}

TEST_P(Embedding, NanStaysInItsRow) {
  const Case c = make(5, 8, 4000, dtype());
  c.grad_out[17][3] = NAN;
  const Tensor nan = gradient(c.table, c.indices, c.grad_out).isnan();
  EXPECT_TRUE(nan[c.indices[17].item<int64_t>()][3].item<bool>());
  EXPECT_EQ(nan.sum().item<int64_t>(), 1);
  c.table[1][2] = INFINITY;
  EXPECT_TRUE(ops::embedding(c.table, at::tensor({1}, at::kLong))[0][2].isposinf().item<bool>());
}

TEST_P(Embedding, Nothing) {
  const Tensor table = random({3, 4}, dtype());
  const Tensor none = at::empty({2, 0}, at::kLong);
  EXPECT_EQ(ops::embedding(table, none).sizes(), at::IntArrayRef({2, 0, 4}));
  EXPECT_EQ(gradient(table, none, at::empty({2, 0, 4})).count_nonzero().item<int64_t>(), 0);
  EXPECT_EQ(ops::embedding(random({3, 0}, dtype()), at::ones({2}, at::kLong)).sizes(),
            at::IntArrayRef({2, 0}));
}

TEST_P(Embedding, WithoutAGradient) {
  const Tensor table = random({3, 4}, dtype());
  EXPECT_FALSE(ops::embedding(table, at::ones({2}, at::kLong)).requires_grad());
}

// As on other devices: FP64, and the sums of a composition.
TEST(ComposedEmbedding, Fp64AddsUpInFp64) {
  at::manual_seed(52);
  const Tensor table = random({3, 4}, at::kFloat).to(at::kDouble);
  const Tensor indices = at::randint(3, {2000}, at::kLong);
  const Tensor grad_out = random({2000, 4}, at::kFloat).to(at::kDouble);
  EXPECT_EQ(ops::embedding(table, indices).scalar_type(), at::kDouble);
  EXPECT_TRUE(at::equal(ops::embedding(table, indices), table.index_select(0, indices)));
  const Tensor exact = at::zeros({3, 4}, at::kDouble).index_add(0, indices, grad_out);
  expect_within(gradient(table, indices, grad_out), exact, at::full({3, 4}, 1e-9, at::kDouble));
  const Tensor narrow = gradient(table.to(at::kBFloat16), indices, grad_out);
  EXPECT_EQ(narrow.scalar_type(), at::kBFloat16);
  expect_within(narrow, exact,
                after_rounding(at::full({3, 4}, 1e-9, at::kDouble), exact, at::kBFloat16));
}

TEST(EmbeddingErrors, SayWhatIsWrong) {
  const Tensor table = at::ones({4, 2});
  const auto of = [&](const Tensor& indices, int64_t padding_idx = -1) {
    return message_of<InvalidArgument>([&] { ops::embedding(table, indices, padding_idx); });
  };
  EXPECT_EQ(of(at::tensor({0, 1, 2, 3, 3, 4}, at::kLong).view({2, 3})),
            "embedding: index 4 at position [1, 2] is outside of a table of 4 rows; pass 0 to 3");
  EXPECT_EQ(of(at::tensor({0, -1}, at::kInt)),
            "embedding: index -1 at position [1] is outside of a table of 4 rows; pass 0 to 3");
  EXPECT_EQ(of(at::ones({2})), "embedding: indices are Float; pass Long or Int");
  EXPECT_EQ(of(at::ones({2}, at::kLong), 4),
            "embedding: padding_idx is 4 for a table of 4 rows; pass one of them, or -1");
  EXPECT_EQ(
      message_of<InvalidArgument>([&] { ops::embedding(at::ones({4}), at::ones({2}, at::kLong)); }),
      "embedding: table has shape [4]; pass (rows, numbers a row)");
  EXPECT_EQ(message_of<InvalidArgument>(
                [&] { ops::embedding(table.to(at::kInt), at::ones({2}, at::kLong)); }),
            "embedding: table is Int; pass Float, BFloat16, Half or Double");
  EXPECT_EQ(message_of<InvalidArgument>(
                [&] { ops::embedding(table, at::ones({2}, at::kLong), -1, at::kInt); }),
            "embedding: dtype is Int; pass Float, BFloat16, Half or Double");
}

TEST(EmbeddingErrors, SecondDerivativesAreRefused) {
  const Tensor table = at::ones({4, 2}).requires_grad_();
  const Tensor out = ops::embedding(table, at::ones({2}, at::kLong));
  EXPECT_THROW(torch::autograd::grad({out.sum()}, {table}, {}, true, /*create_graph=*/true),
               Unsupported);
}

}  // namespace
}  // namespace mantissa::ops
