#include "mantissa/ops/gradient_pass.h"

#include <cmath>
#include <limits>
#include <utility>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"

namespace mantissa::ops {
namespace {

using at::Tensor;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kMax = std::numeric_limits<float>::max();

struct Answer {
  float found_inf;
  float norm;
};

Answer pass(const std::vector<Tensor>& gradients, const Tensor& scale = {}) {
  const GradientPass result = gradient_pass(gradients, scale);
  EXPECT_EQ(result.found_inf.dim() + result.norm.dim(), 0);
  return {result.found_inf.item<float>(), result.norm.item<float>()};
}

Tensor scalar(double value) { return at::full({}, value, at::kFloat); }

TEST(GradientPass, NormIsOfAllUnscaledGradientsTogether) {
  const Answer answer = pass({at::full({2, 2}, 8, at::kFloat), at::full({9}, 16, at::kBFloat16),
                              at::full({1}, 128, at::kHalf)},
                             scalar(16));
  EXPECT_EQ(answer.found_inf, 0);
  EXPECT_FLOAT_EQ(answer.norm, std::sqrt(4 * 0.25F + 9 + 64));
}

TEST(GradientPass, ChangesNoGradient) {
  const Tensor gradient = at::randn({100});
  const Tensor before = gradient.clone();
  (void)pass({gradient}, scalar(4));
  EXPECT_TRUE(at::equal(gradient, before));
}

TEST(GradientPass, EmptyListsAndEmptyTensorsGiveZero) {
  for (const std::vector<Tensor>& none : {std::vector<Tensor>{}, {at::empty({0})}}) {
    EXPECT_EQ(pass(none).found_inf, 0);
    EXPECT_EQ(pass(none).norm, 0);
  }
}

TEST(GradientPass, OneBadElementAnywhereIsFound) {
  for (at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (int64_t position : {0, 1023, 32768, 40000}) {
      for (float bad : {kInf, -kInf, std::nanf("")}) {
        Tensor gradient = at::zeros({40001}, dtype);
        gradient[position] = bad;
        EXPECT_EQ(pass({at::zeros({3}), gradient}, scalar(1024)).found_inf, 1) << dtype << position;
      }
    }
  }
}

// 1e38 is finite, and 1e38 / 2^-10 is not.
TEST(GradientPass, OverflowByUnscalingIsFound) {
  EXPECT_EQ(pass({at::full({3}, 1e38, at::kFloat)}, scalar(0x1p-10)).found_inf, 1);
  EXPECT_EQ(pass({at::full({3}, 1e38, at::kFloat)}, scalar(1)).found_inf, 0);
}

TEST(GradientPass, AScaleThatCannotBeInvertedIsFound) {
  for (double scale : {0.0, 1e-42, HUGE_VAL, std::nan("")}) {
    EXPECT_EQ(pass({at::zeros({2})}, scalar(scale)).found_inf, 1) << scale;
    EXPECT_EQ(pass({}, scalar(scale)).found_inf, 0) << scale;
  }
}

TEST(GradientPass, NormOfFiniteGradientsIsFinite) {
  EXPECT_EQ(pass({at::full({2}, kMax, at::kFloat)}).norm, kMax) << "saturates";
  EXPECT_EQ(pass({at::full({2}, kMax, at::kFloat)}).found_inf, 0);
  EXPECT_FLOAT_EQ(pass({at::full({4}, 1e30, at::kFloat)}).norm, 2e30F) << "its square is not FP32";
  EXPECT_FLOAT_EQ(pass({at::full({4}, 1e-30, at::kFloat)}).norm, 2e-30F) << "nor is this one";
  EXPECT_FLOAT_EQ(pass({at::full({100}, 65504, at::kHalf)}).norm, 655040);
}

// Squares and sums in FP64: (n + 2) 2^-53 of relative error, far below the one FP32 rounding.
TEST(GradientPass, EqualsTheReferenceOnMixedListsOfAnyLayout) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    SCOPED_TRACE(seed);
    at::manual_seed(seed);
    const Tensor base = at::randn({300, 170});
    const std::vector<Tensor> gradients = {base,
                                           base.t().to(at::kHalf),
                                           base.slice(1, 3, 160, 7),
                                           base[0].to(at::kBFloat16),
                                           base[1].expand({5, 170}),
                                           at::randn({})};
    const GradientPass fast = gradient_pass(gradients, scalar(3));
    const GradientPass slow = gradient_pass_reference(gradients, scalar(3));
    EXPECT_TRUE(at::equal(fast.found_inf, slow.found_inf));
    const float norm = slow.norm.item<float>();
    EXPECT_NEAR(fast.norm.item<float>(), norm, norm * 0x1p-23F);
  }
}

TEST(GradientPass, DoesNotDependOnTheNumberOfThreads) {
  at::manual_seed(5);
  const std::vector<Tensor> gradients = {at::randn({1000003}), at::randn({777}).to(at::kHalf)};
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const float one = pass(gradients).norm;
  at::set_num_threads(3);
  const float three = pass(gradients).norm;
  at::set_num_threads(before);
  EXPECT_EQ(one, three);
}

TEST(GradientPass, SumsDuplicatesOfSparseGradientsFirst) {
  const Tensor indices = at::zeros({1, 2}, at::kLong);
  const auto sparse = [&](float value, at::ScalarType dtype) {
    return at::sparse_coo_tensor(indices, at::full({2}, value, dtype), {4});
  };
  EXPECT_EQ(pass({sparse(6e4F, at::kHalf)}).found_inf, 1);
  EXPECT_EQ(pass({sparse(3e38F, at::kFloat)}).found_inf, 1);
  EXPECT_EQ(pass({sparse(1.5F, at::kFloat)}).norm, 3);
  EXPECT_EQ(pass({sparse(-2e38F, at::kBFloat16)}).found_inf, 1);
  EXPECT_EQ(pass({sparse(6e4F, at::kHalf)}, scalar(65536)).found_inf, 1) << "scaled as it is";
  EXPECT_EQ(pass({sparse(3e4F, at::kHalf)}).found_inf, 0);
}

// A row of 16 bits may be used thousands of times: in FP16 a sum of ones stops at 2048, in BF16 at
// 256. Both sums are numbers of the format.
TEST(GradientPass, SumsManyDuplicatesOf16BitsInFp32) {
  for (const auto& [dtype, uses] : {std::pair{at::kBFloat16, 1000}, std::pair{at::kHalf, 6000}}) {
    const Tensor used =
        at::sparse_coo_tensor(at::zeros({1, uses}, at::kLong), at::full({uses}, 1, dtype), {4});
    EXPECT_EQ(pass({used}).norm, uses) << dtype;
    const Tensor rows = at::sparse_coo_tensor(at::zeros({1, uses}, at::kLong),
                                              at::full({uses, 2, 2}, 1, dtype), {3, 2, 2});
    EXPECT_EQ(pass({rows}).norm, 2 * uses) << dtype;
  }
  // Partial sums may be beyond the format where the sum is not.
  const Tensor returns = at::sparse_coo_tensor(at::zeros({1, 3}, at::kLong),
                                               at::tensor({6e4F, 6e4F, -6e4F}).to(at::kHalf), {1});
  EXPECT_EQ(pass({returns}).found_inf, 0);
  EXPECT_EQ(pass({returns}).norm, at::full({}, 6e4F).to(at::kHalf).item<float>());
  const Tensor none =
      at::sparse_coo_tensor(at::zeros({1, 0}, at::kLong), at::zeros({0}, at::kHalf), {4});
  EXPECT_EQ(pass({none}).norm, 0);
}

TEST(GradientPass, NamesTheGradientThatCannotBeRead) {
  const auto message = [](const std::vector<Tensor>& gradients,
                          const Tensor& scale) -> std::string {
    try {
      (void)gradient_pass(gradients, scale);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message({at::zeros({1}), at::zeros({1}, at::kDouble)}, {}),
            "gradient_pass: gradient 1 is Double; valid: Float BFloat16 Half");
  EXPECT_EQ(message({Tensor()}, {}),
            "gradient_pass: gradient 0 is undefined; leave out parameters without a gradient");
  EXPECT_EQ(message({at::zeros({1})}, at::zeros({1})),
            "gradient_pass: scale is Float of shape [1]; pass a 0-d Float tensor");
}

}  // namespace
}  // namespace mantissa::ops
