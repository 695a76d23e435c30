#include "mantissa/ops/panel_product.h"

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorIndexing.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "mantissa/ops/rounding_bound.h"
#include "mantissa/tensor/dtype.h"

namespace mantissa::ops {
namespace {

using at::Tensor;
using numerics::Format;

Factor factor_of(const Tensor& matrix, Format format) {
  return {matrix.const_data_ptr(), format, matrix.stride(0), matrix.stride(1)};
}

struct Options {
  float alpha = 1;
  float beta = 0;
  std::optional<Tensor> addend;  // n numbers, or m x n
};

template <auto kProduct>
Tensor multiply(const Tensor& a, const Tensor& b, Format read, const Options& options = {}) {
  Tensor out = at::empty({a.size(0), b.size(1)}, a.options()).fill_(7);
  ProductOutput output = {out.mutable_data_ptr(), tensor::format_of(out.scalar_type()), b.size(1)};
  output.alpha = options.alpha;
  output.beta = options.beta;
  if (options.addend) {
    output.addend = options.addend->const_data_ptr();
    output.addend_row_stride = options.addend->dim() == 1 ? 0 : options.addend->stride(0);
  }
  kProduct(factor_of(a, read), factor_of(b, read), a.size(0), b.size(1), a.size(1), output);
  return out;
}

// Equal bits, where NaN equals NaN. The reference's multiply-adds are fused, so without fused ones
// the two may differ.
void expect_same(const Tensor& a, const Tensor& b, Format read, const Options& options = {}) {
  const Tensor actual = multiply<&panel_product>(a, b, read, options).to(at::kFloat);
  const Tensor expected = multiply<&panel_product_reference>(a, b, read, options).to(at::kFloat);
  EXPECT_TRUE(at::equal(actual.isnan(), expected.isnan()));
  EXPECT_TRUE(at::equal(actual.nan_to_num(), expected.nan_to_num()));
}

class PanelProduct : public testing::TestWithParam<Format> {
 protected:
  void SetUp() override { at::manual_seed(17); }

  static at::ScalarType dtype() {
    return GetParam() == Format::tf32 ? at::kFloat : tensor::dtype_of(GetParam());
  }

  // By rows, or by columns; within a larger matrix.
  static Tensor random(int64_t rows, int64_t cols, bool by_rows) {
    const Tensor larger = ops::random({rows + 2, cols + 3}, dtype());
    return (by_rows ? larger : ops::random({cols + 3, rows + 2}, dtype()).t())
        .narrow(0, 1, rows)
        .narrow(1, 2, cols);
  }
};

INSTANTIATE_TEST_SUITE_P(Formats, PanelProduct,
                         testing::Values(Format::bf16, Format::fp16, Format::tf32),
                         [](const testing::TestParamInfo<Format>& format) {
                           return std::string(to_string(format.param));
                         });

constexpr int64_t kD = kProductDepth;

// The instruction sets that were compiled and that this processor has, in turn.
class Targets {
 public:
  ~Targets() { use(0); }

  static std::vector<int64_t> all() { return hwy::SupportedAndGeneratedTargets(); }

  static void use(int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

// m, k, n: single numbers, odd ones, those around the sizes of strips, tiles, parts and panels.
constexpr std::array<std::array<int64_t, 3>, 12> kSizes = {{{1, 1, 1},
                                                            {1, 9, 40},
                                                            {6, 3, 16},
                                                            {12, 4, 32},
                                                            {13, 5, 33},
                                                            {37, 70, 65},
                                                            {3, kD, 5},
                                                            {5, kD + 1, 34},
                                                            {121, 40, 31},
                                                            {9, 3 * kD + 3, 7},
                                                            {2, 3, 515},
                                                            {250, 2, 3}}};

// Whole numbers, whose sums are exact: also without fused multiply-adds.
TEST_P(PanelProduct, IsExactWithEveryInstructionSet) {
  const Targets targets;
  for (const int64_t target : Targets::all()) {
    Targets::use(target);
    for (const auto& [m, k, n] : kSizes) {
      for (const bool a_by_rows : {true, false}) {
        for (const bool b_by_rows : {true, false}) {
          SCOPED_TRACE(testing::Message() << hwy::TargetName(target) << " " << m << " x " << k
                                          << " x " << n << " " << a_by_rows << " " << b_by_rows);
          expect_same(random(m, k, a_by_rows).mul(4).round(),
                      random(k, n, b_by_rows).mul(4).round(), GetParam());
        }
      }
    }
  }
}

TEST_P(PanelProduct, IsItsReferenceForEveryLayoutAndSize) {
  for (const auto& [m, k, n] : kSizes) {
    for (const bool a_by_rows : {true, false}) {
      for (const bool b_by_rows : {true, false}) {
        SCOPED_TRACE(testing::Message()
                     << m << " x " << k << " x " << n << " " << a_by_rows << " " << b_by_rows);
        expect_same(random(m, k, a_by_rows), random(k, n, b_by_rows), GetParam());
      }
    }
  }
}

// The sums over more than a panel's depth are kept for 2048 rows at a time.
TEST_P(PanelProduct, IsItsReferenceWhereRowsAndDepthTakeSeveralPanels) {
  const int before = at::get_num_threads();
  at::set_num_threads(1);  // threads share the rows
  expect_same(random(2100, 3 * kD + 1, true), random(3 * kD + 1, 2, true), GetParam());
  at::set_num_threads(before);
}

TEST_P(PanelProduct, AddsAndScalesAsItsReference) {
  const Tensor a = random(14, 40, true);
  const Tensor b = random(40, 37, false);
  for (const Tensor& addend : {random(14, 37, true), ops::random({37}, dtype())}) {
    for (const float alpha : {1.0F, -0.5F, 0.0F}) {
      for (const float beta : {1.0F, 0.0F, 3.0F}) {
        expect_same(a, b, GetParam(), {alpha, beta, addend});
      }
    }
  }
}

TEST_P(PanelProduct, DoesNotReadTheAddendWhenBetaIsZero) {
  const Tensor a = random(4, 5, true);
  const Tensor b = random(5, 6, true);
  const Tensor nan = at::full({6}, std::numeric_limits<float>::quiet_NaN()).to(dtype());
  EXPECT_FALSE(multiply<&panel_product>(a, b, GetParam(), {1, 0, nan}).isnan().any().item<bool>());
}

// A row with one, a column with the other, and zeros that they meet.
TEST_P(PanelProduct, NanAndInfinityReachTheirRowsAndColumnsOnly) {
  for (const float special :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const Tensor a = random(13, 9, true).contiguous();
    const Tensor b = random(9, 35, true).contiguous();
    a.index({3, 4}).fill_(special);
    b.index({7, 20}).fill_(-special);
    a.index({5, 7}).fill_(0);
    expect_same(a, b, GetParam());
    const Tensor finite = multiply<&panel_product>(a, b, GetParam()).isfinite();
    EXPECT_EQ(finite.logical_not().sum().item<int64_t>(), 35 + 13 - 1);
  }
}

// Results beyond the largest number of the format, and in its subnormal range.
TEST_P(PanelProduct, OverflowsAndUnderflowsAsItsReference) {
  for (const double size : {1e3, 1e19, 1e-4, 1e-19}) {
    expect_same(random(12, 20, true).mul(size), random(20, 16, true).mul(size), GetParam());
  }
}

TEST_P(PanelProduct, DoesNotDependOnTheNumberOfThreads) {
  const Tensor a = random(500, 2 * kD + 9, false);
  const Tensor b = random(2 * kD + 9, 300, true);
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const Tensor one = multiply<&panel_product>(a, b, GetParam());
  for (const int threads : {2, 3}) {
    at::set_num_threads(threads);
    EXPECT_TRUE(at::equal(multiply<&panel_product>(a, b, GetParam()), one)) << threads;
  }
  at::set_num_threads(before);
}

}  // namespace
}  // namespace mantissa::ops
