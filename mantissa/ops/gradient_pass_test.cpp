#include "mantissa/ops/gradient_pass.h"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/ops/simd_target_testing.h"

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

// Every boundary of a count, on both sides and of both signs.
std::vector<float> boundaries() {
  std::vector<float> values = {0.0F, -0.0F, kInf, -kInf, std::nanf(""), kMax, 0x1p-149F, 1.0F};
  for (const float edge : {0x1p-126F, 0x1p-25F, 0x1p-24F, 0x1p-14F - 0x1p-25F, 0x1p-14F, 65504.0F,
                           65520.0F, 65536.0F}) {
    for (const float value : {std::nextafter(edge, 0.0F), edge, std::nextafter(edge, kInf)}) {
      values.push_back(value);
      values.push_back(-value);
    }
  }
  return values;
}

// Lists of all lengths around vectors, steps and pieces, in all formats and of any layout.
std::vector<Tensor> gradients_of_any_kind() {
  std::vector<Tensor> gradients;
  const Tensor edges = at::tensor(boundaries());
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const int64_t length : {0, 1, 3, 7, 15, 16, 17, 33, 1025, 32768, 40001}) {
      const Tensor exponents = at::randint(-40, 20, {length}).to(at::kFloat);
      gradients.push_back(at::randn({length}).mul(exponents.exp2()).to(dtype));
    }
    gradients.push_back(edges.to(dtype));
    gradients.push_back(at::zeros({19}, dtype));
    gradients.push_back(at::full({5}, kInf, dtype));
    gradients.push_back(edges.slice(0, 1).to(dtype).slice(0, 1));  // misaligned
  }
  const Tensor base = at::randn({30, 17});
  gradients.insert(gradients.end(), {base.t(), base.slice(1, 3, 16, 7), base[1].expand({5, 17})});
  return gradients;
}

// Counts and magnitudes are exact. The norm is a root of FP64 sums in another order: n squares and
// n - 1 additions are (n + 1) 2^-53, halved by the root, and the root itself.
TEST(GradientPass, StatisticsAreThoseOfTheReferenceOnEveryInstructionSet) {
  at::manual_seed(8);
  const std::vector<Tensor> gradients = gradients_of_any_kind();
  for (const Tensor& scale : {Tensor(), scalar(3), scalar(1024), scalar(0x1p-20)}) {
    std::vector<GradientStatistics> expected;
    (void)gradient_pass_reference(gradients, scale, &expected);
    std::vector<GradientStatistics> first;
    on_every_simd_target([&] {
      std::vector<GradientStatistics> found;
      const Tensor norm = gradient_pass(gradients, scale, &found).norm;
      ASSERT_EQ(found.size(), gradients.size());
      first = first.empty() ? found : first;
      for (size_t i = 0; i < found.size(); ++i) {
        SCOPED_TRACE(i);
        EXPECT_TRUE(found[i] == first[i] || std::isnan(found[i].norm)) << "another sum";
        const double bound = static_cast<double>(found[i].count + 3) * 0x1p-53;
        if (std::isfinite(expected[i].norm)) {
          EXPECT_NEAR(found[i].norm, expected[i].norm, bound * expected[i].norm);
        } else {
          EXPECT_FALSE(std::isfinite(found[i].norm));
        }
        found[i].norm = expected[i].norm = 0;
        EXPECT_EQ(found[i], expected[i]);
      }
      (void)gradient_pass_reference(gradients, scale, &expected);
    });
  }
}

TEST(GradientPass, StatisticsSayWhatFp16FlushesToZero) {
  std::vector<GradientStatistics> statistics;
  const Tensor gradient =
      at::tensor({0.0F, 0x1p-30F, -0x1p-25F, 0x1.8p-25F, 0x1p-15F, 1.0F, -7e4F, kInf, 0x1p-140F});
  (void)gradient_pass({gradient.mul(4)}, scalar(4), &statistics);
  GradientStatistics expected;
  expected.count = 9;
  expected.zeros = 1;
  expected.non_finite = 1;
  expected.fp32_subnormal = 1;
  expected.fp16_zero = 3;
  expected.fp16_subnormal = 2;
  expected.fp16_infinite = 1;
  expected.largest = 7e4F;
  expected.smallest = 0x1p-140F;
  expected.norm = HUGE_VAL;
  EXPECT_EQ(statistics, std::vector{expected});
}

TEST(GradientPass, StatisticsChangeNeitherNormNorFoundInf) {
  at::manual_seed(9);
  const std::vector<Tensor> gradients = {at::randn({70001}), at::randn({777}).to(at::kHalf)};
  std::vector<GradientStatistics> statistics;
  const GradientPass with = gradient_pass(gradients, scalar(7), &statistics);
  const GradientPass without = gradient_pass(gradients, scalar(7));
  EXPECT_TRUE(at::equal(with.norm, without.norm));
  EXPECT_TRUE(at::equal(with.found_inf, without.found_inf));
  (void)gradient_pass({}, {}, &statistics);
  EXPECT_TRUE(statistics.empty());
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
