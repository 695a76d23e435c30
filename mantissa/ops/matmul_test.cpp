#include <cmath>
#include <limits>

#include <ATen/Parallel.h>
#include <ATen/ops/_addmm_activation.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/addmv.h>
#include <ATen/ops/addr.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mv.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/vdot.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/ops/kernel_switch_testing.h"
#include "mantissa/ops/rounding_bound.h"

namespace mantissa::ops {
namespace {

using at::Tensor;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class Matmul : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    install_cpu_kernels();
    at::manual_seed(7);
  }
  at::ScalarType dtype() const { return GetParam(); }
  Tensor random(at::IntArrayRef sizes) const { return ops::random(sizes, dtype()); }

  CpuKernelsGuard ours_{CpuKernels::ours};
};

INSTANTIATE_TEST_SUITE_P(Formats, Matmul, testing::Values(at::kBFloat16, at::kHalf),
                         testing::PrintToStringParamName());

Tensor wide(const Tensor& tensor) { return tensor.to(at::kDouble); }

// beta c + alpha a b by its definition in FP64, and the error that FP32 sums and one rounding
// allow: the products by alpha and beta and the addition of c are three roundings more.
void expect_product(const Tensor& actual, const Tensor& a, const Tensor& b, const Tensor& c,
                    double beta, double alpha) {
  Tensor exact = at::matmul(wide(a), wide(b)).mul(alpha);
  Tensor magnitude = at::matmul(wide(a).abs(), wide(b).abs()).mul(std::abs(alpha));
  if (beta != 0) {
    exact = exact.add(wide(c), beta);
    magnitude = magnitude.add(wide(c).abs(), std::abs(beta));
  }
  const auto terms = static_cast<double>(a.size(-1));
  expect_within(actual, exact, sum_bound(exact, magnitude, terms + 3, a.scalar_type()));
}

TEST_P(Matmul, EveryLayoutIsWithinTheBoundOfFp32SumsAndOneRounding) {
  const auto layouts = [this](int64_t rows, int64_t columns) {
    return std::vector<Tensor>{
        random({rows, columns}),
        random({columns, rows}).t(),
        random({rows, 2 * columns}).slice(1, 0, 2 * columns, 2),
        random({rows + 3, columns + 5}).narrow(0, 3, rows).narrow(1, 5, columns),
        random({1, columns}).expand({rows, columns}),
        random({rows, 1}).expand({rows, columns}),
    };
  };
  for (const Tensor& a : layouts(19, 33)) {
    for (const Tensor& b : layouts(33, 13)) {
      const Tensor product = at::mm(a, b);
      EXPECT_EQ(product.scalar_type(), dtype());
      expect_product(product, a, b, {}, 0, 1);
    }
  }
}

TEST_P(Matmul, MatricesOfOneNumberMayHaveAnyStrides) {
  const Tensor one = random({1, 1, 5}).select(2, 0);
  ASSERT_EQ(one.strides(), at::IntArrayRef({5, 5}));
  const Tensor b = random({1, 3});
  expect_product(at::mm(one, b), one, b, {}, 0, 1);
  const Tensor a = random({4, 1});
  expect_product(at::mm(a, one), a, one, {}, 0, 1);
  const Tensor batch = one.unsqueeze(0);
  EXPECT_TRUE(at::equal(at::bmm(batch, batch)[0], at::mm(one, one)));
}

TEST_P(Matmul, EmptyDimensionsGiveEmptyOrZeroProducts) {
  EXPECT_EQ(at::mm(random({0, 3}), random({3, 2})).sizes(), at::IntArrayRef({0, 2}));
  EXPECT_EQ(at::mm(random({2, 3}), random({3, 0})).sizes(), at::IntArrayRef({2, 0}));
  EXPECT_TRUE(at::equal(at::mm(random({2, 0}), random({0, 3})), at::zeros({2, 3}, dtype())));
  EXPECT_TRUE(
      at::equal(at::bmm(random({2, 2, 0}), random({2, 0, 3})), at::zeros({2, 2, 3}, dtype())));
  const Tensor c = random({2, 3});
  EXPECT_TRUE(at::equal(at::addmm(c, random({2, 0}), random({0, 3}), 2, 1), c.mul(2)));
}

TEST_P(Matmul, AddmmTakesAlphaBetaAndABroadcastAddend) {
  const Tensor a = random({17, 300});
  const Tensor b = random({40, 300}).t();
  for (const Tensor& c : {random({17, 40}), random({40}), random({17, 1}), random({})}) {
    for (const auto& [beta, alpha] : {std::pair{1.0, 1.0}, {0.5, -3.0}, {-1.25, 0.0}}) {
      expect_product(at::addmm(c, a, b, beta, alpha), a, b, c, beta, alpha);
    }
  }
}

TEST_P(Matmul, BetaZeroIgnoresNanInTheAddend) {
  const Tensor a = random({4, 8});
  const Tensor b = random({8, 4});
  const Tensor nan = at::full({4, 4}, kNan, dtype());
  EXPECT_TRUE(at::equal(at::addmm(nan, a, b, 0), at::mm(a, b)));
  EXPECT_TRUE(at::equal(nan.clone().addmm_(a, b, 0), at::mm(a, b)));
  EXPECT_TRUE(
      at::equal(at::baddbmm(nan.unsqueeze(0), a.unsqueeze(0), b.unsqueeze(0), 0)[0], at::mm(a, b)));
  EXPECT_TRUE(at::equal(at::addmv(nan[0], a, b.t()[0], 0), at::mv(a, b.t()[0])));
}

TEST_P(Matmul, BatchesVectorsAndOuterProductsAreWithinTheBound) {
  const Tensor a = random({3, 11, 70});
  const Tensor b = random({3, 13, 70}).transpose(1, 2);
  const Tensor c = random({3, 11, 13});
  expect_product(at::bmm(a, b), a, b, {}, 0, 1);
  expect_product(at::baddbmm(c, a, b, 0.5, 2), a, b, c, 0.5, 2);
  expect_product(at::mv(a[0], b[0].t()[0]), a[0], b[0].t()[0], {}, 0, 1);
  expect_product(at::addmv(c[0].t()[0], a[0], b[0].t()[0], 0.5, 2), a[0], b[0].t()[0], c[0].t()[0],
                 0.5, 2);
  expect_product(at::dot(a[0][0], a[0][1]), a[0][0], a[0][1], {}, 0, 1);
  expect_product(at::vdot(a[0][0], a[0][1]), a[0][0], a[0][1], {}, 0, 1);
  const Tensor column = a[0][0].unsqueeze(1);
  const Tensor row = a[0][1].unsqueeze(0);
  const Tensor square = random({70, 70});
  expect_product(at::addr(square, a[0][0], a[0][1], 0.5, 2), column, row, square, 0.5, 2);
  expect_product(square.clone().addr_(a[0][0], a[0][1], 0.5, 2), column, row, square, 0.5, 2);
}

// Bit for bit the FP32 result rounded once: the promise, and the proof that the own kernel ran. Of
// integers, whose FP32 sums are exact in every order, for LibTorch's order depends on the
// processor.
TEST_P(Matmul, EveryFormIsTheFp32ResultRoundedOnce) {
  const auto integers = [this](at::IntArrayRef sizes) {
    return at::randint(-9, 10, sizes).to(dtype());
  };
  const Tensor a = integers({2, 24, 333});
  const Tensor b = integers({2, 333, 18});
  const Tensor c = integers({2, 24, 18});
  const auto fp32 = [](const Tensor& tensor) { return tensor.to(at::kFloat); };
  const auto expect_rounded = [this](const Tensor& actual, const Tensor& exact) {
    EXPECT_EQ(actual.scalar_type(), dtype());
    EXPECT_TRUE(at::equal(actual, exact.to(dtype())));
  };
  const Tensor A = fp32(a);
  const Tensor B = fp32(b);
  const Tensor C = fp32(c);
  const Tensor product = at::addmm(C[0], A[0], B[0], 0.25, 1.5);
  const Tensor batch = at::baddbmm(C, A, B, 0.25, 1.5);
  const Tensor vector = at::addmv(C[0].t()[0], A[0], B[0].t()[0], 0.25, 1.5);
  const Tensor outer = at::addr(C[0], A[0].t()[0], B[0][0], 0.25, 1.5);
  expect_rounded(at::mm(a[0], b[0]), at::mm(A[0], B[0]));
  expect_rounded(at::addmm(c[0], a[0], b[0], 0.25, 1.5), product);
  expect_rounded(c[0].clone().addmm_(a[0], b[0], 0.25, 1.5), product);
  expect_rounded(at::bmm(a, b), at::bmm(A, B));
  expect_rounded(at::baddbmm(c, a, b, 0.25, 1.5), batch);
  expect_rounded(c.clone().baddbmm_(a, b, 0.25, 1.5), batch);
  expect_rounded(at::addmv(c[0].t()[0], a[0], b[0].t()[0], 0.25, 1.5), vector);
  expect_rounded(c[0].t()[0].clone().addmv_(a[0], b[0].t()[0], 0.25, 1.5), vector);
  expect_rounded(at::addr(c[0], a[0].t()[0], b[0][0], 0.25, 1.5), outer);
  expect_rounded(at::dot(a[0][0], a[0][1]), at::dot(A[0][0], A[0][1]));
  expect_rounded(at::_addmm_activation(c[0], a[0], b[0], 0.25, 1.5, true),
                 at::_addmm_activation(C[0], A[0], B[0], 0.25, 1.5, true));
  expect_rounded(at::_addmm_activation(c[0], a[0], b[0], 0.25, 1.5, false),
                 at::_addmm_activation(C[0], A[0], B[0], 0.25, 1.5, false));
  expect_rounded(at::linear(a, b[0].t(), c[0][0]), at::linear(A, B[0].t(), C[0][0]));
  expect_rounded(at::einsum("bik,bkj->ibj", {a, b}), at::einsum("bik,bkj->ibj", {A, B}));
}

TEST_P(Matmul, OutFormsResizeAndEqualTheFunctions) {
  const Tensor a = random({2, 5, 7});
  const Tensor b = random({2, 7, 4});
  const Tensor c = random({2, 5, 4});
  Tensor out = at::empty({0}, dtype());
  EXPECT_TRUE(at::equal(at::mm_out(out, a[0], b[0]), at::mm(a[0], b[0])));
  out = at::empty({0}, dtype());
  EXPECT_TRUE(
      at::equal(at::addmm_out(out, c[0], a[0], b[0], 2, 3), at::addmm(c[0], a[0], b[0], 2, 3)));
  out = at::empty({0}, dtype());
  EXPECT_TRUE(at::equal(at::bmm_out(out, a, b), at::bmm(a, b)));
  out = at::empty({0}, dtype());
  EXPECT_TRUE(at::equal(at::baddbmm_out(out, c, a, b, 2, 3), at::baddbmm(c, a, b, 2, 3)));
  out = at::empty({0}, dtype());
  EXPECT_TRUE(at::equal(at::mv_out(out, a[0], b[0].t()[0]), at::mv(a[0], b[0].t()[0])));
  out = at::empty({0}, dtype());
  EXPECT_TRUE(at::equal(at::addr_out(out, c[0], a[0].t()[0], b[0][0]),
                        at::addr(c[0], a[0].t()[0], b[0][0])));
  out = at::empty({0}, dtype());
  EXPECT_TRUE(at::equal(at::_addmm_activation_out(out, c[0], a[0], b[0]),
                        at::_addmm_activation(c[0], a[0], b[0])));
  Tensor transposed = at::empty({4, 5}, dtype()).t();
  at::mm_out(transposed, a[0], b[0]);
  EXPECT_TRUE(at::equal(transposed, at::mm(a[0], b[0])));
  EXPECT_EQ(transposed.stride(0), 1) << "an output of the right shape keeps its memory";
}

TEST_P(Matmul, AnOutputMayBeAnInput) {
  Tensor a = random({6, 6});
  const Tensor b = random({6, 6});
  const Tensor expected = at::mm(a, b);
  Tensor addend = a.clone();
  EXPECT_TRUE(at::equal(at::addmm_out(addend, addend, a, b), at::addmm(a, a, b)));
  EXPECT_TRUE(at::equal(at::mm_out(a, a, b), expected));
}

TEST_P(Matmul, ErrorsAreLibTorchsOwn) {
  const Tensor a = random({2, 3});
  const Tensor b = random({3, 2});
  const std::vector<std::function<void()>> calls = {
      [&] { (void)at::mm(a, b.to(at::kFloat)); },
      [&] { (void)at::mm(a.to(at::kFloat), b); },
      [&] { (void)at::mm(a, dtype() == at::kHalf ? b.to(at::kBFloat16) : b.to(at::kHalf)); },
      [&] { (void)at::mm(a, a); },
      [&] { (void)at::mm(a, b[0]); },
      [&] { (void)at::bmm(a, b); },
      [&] { (void)at::addmm(at::zeros({5}, dtype()), a, b); },
      [&] { (void)at::addmm(at::zeros({2}, at::kFloat), a, b); },
      [&] {
        at::zeros({1, 2}, dtype()).addmm_(a, b);
      },
      [&] { (void)at::dot(a[0], b[0]); },
      [&] {
        Tensor out = at::empty({0}, at::kFloat);
        at::mm_out(out, a, b);
      },
  };
  for (size_t i = 0; i < calls.size(); ++i) {
    SCOPED_TRACE(i);
    const std::string message = failure_of(calls[i]);
    EXPECT_NE(message, "");
    const CpuKernelsGuard stock(CpuKernels::stock);
    EXPECT_EQ(message, failure_of(calls[i]));
  }
}

TEST(MatmulDtypes, OthersAreBitForBitLibTorchs) {
  install_cpu_kernels();
  at::manual_seed(8);
  for (at::ScalarType dtype : {at::kFloat, at::kDouble, at::kLong, at::kComplexFloat}) {
    const Tensor a = at::randn({33, 65}).mul(100).to(dtype);
    const Tensor b = at::randn({65, 17}).mul(100).to(dtype);
    const Tensor c = at::randn({33, 17}).mul(100).to(dtype);
    const auto all = [&] {
      return std::vector<Tensor>{at::mm(a, b), at::addmm(c, a, b),
                                 at::bmm(a.unsqueeze(0), b.unsqueeze(0)), at::mv(a, b.t()[0]),
                                 at::dot(a[0], a[1])};
    };
    const CpuKernelsGuard ours(CpuKernels::ours);
    const std::vector<Tensor> with = all();
    const CpuKernelsGuard stock(CpuKernels::stock);
    const std::vector<Tensor> without = all();
    for (size_t i = 0; i < with.size(); ++i) {
      EXPECT_TRUE(at::equal(with[i], without[i])) << dtype << " " << i;
    }
  }
}

TEST_P(Matmul, SmallOnesAreOursOnEveryCpu) {
  const Tensor a = random({128, 128});
  const Tensor b = random({128, 128});
  const Tensor ours = at::mm(a, b);
  const CpuKernelsGuard automatic(CpuKernels::automatic);
  EXPECT_TRUE(at::equal(at::mm(a, b), ours));
}

TEST_P(Matmul, DoesNotDependOnTheNumberOfThreads) {
  const Tensor a = random({200, 700});
  const Tensor b = random({90, 700}).t();
  const Tensor few = random({2, 60, 70});
  const Tensor many = random({9, 16, 20});
  const int before = at::get_num_threads();
  std::vector<std::vector<Tensor>> results;
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    results.push_back(
        {at::mm(a, b), at::bmm(few, few.transpose(1, 2)), at::bmm(many, many.transpose(1, 2))});
  }
  at::set_num_threads(before);
  for (size_t i = 0; i < results[0].size(); ++i) {
    EXPECT_TRUE(at::equal(results[0][i], results[1][i])) << i;
    EXPECT_TRUE(at::equal(results[0][i], results[2][i])) << i;
  }
}

TEST_P(Matmul, EachProductIsWhollyOneOrTheOtherWhileTheSwitchMoves) {
  EXPECT_TRUE(is_wholly_ours_or_stock([this](uint64_t seed) {
    at::manual_seed(seed);
    const Tensor a = random({32, 2048});
    const Tensor b = random({2048, 32});
    return [=] { return Tensors{at::mm(a, b)}; };
  }));
}

}  // namespace
}  // namespace mantissa::ops
