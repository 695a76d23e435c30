#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/ops/gradient_pass.h"
#include "mantissa/tensor/host_reads_testing.h"

namespace mantissa::ops {
namespace {

using at::Tensor;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kMax = std::numeric_limits<float>::max();

Tensor scalar(double value) { return at::full({}, value, at::kFloat); }

// Sums in FP64, and in FP32 as on a device that has no other.
class GradientPassComposed : public testing::TestWithParam<at::ScalarType> {
 protected:
  static GradientPass pass(const std::vector<Tensor>& gradients, const Tensor& scale = {}) {
    GradientPass result = gradient_pass_composed(gradients, scale, at::kCPU, GetParam());
    EXPECT_EQ(result.found_inf.dim() + result.norm.dim(), 0);
    EXPECT_EQ(result.found_inf.scalar_type(), at::kFloat);
    EXPECT_EQ(result.norm.scalar_type(), at::kFloat);
    return result;
  }

  static float norm(const std::vector<Tensor>& gradients, const Tensor& scale = {}) {
    return pass(gradients, scale).norm.item<float>();
  }

  static float found_inf(const std::vector<Tensor>& gradients, const Tensor& scale = {}) {
    return pass(gradients, scale).found_inf.item<float>();
  }
};

INSTANTIATE_TEST_SUITE_P(Sums, GradientPassComposed, testing::Values(at::kDouble, at::kFloat),
                         [](const auto& sums) { return c10::toString(sums.param); });

TEST_P(GradientPassComposed, EmptyListsAndEmptyTensorsGiveZero) {
  for (const std::vector<Tensor>& none : {std::vector<Tensor>{}, {at::empty({0})}}) {
    EXPECT_EQ(found_inf(none, scalar(0)), 0);
    EXPECT_EQ(norm(none), 0);
  }
}

TEST_P(GradientPassComposed, OneBadElementAnywhereIsFound) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const float bad : {kInf, -kInf, std::nanf("")}) {
      Tensor gradient = at::zeros({1001}, dtype);
      gradient[1000] = bad;
      EXPECT_EQ(found_inf({at::ones({3}), gradient, at::empty({0})}, scalar(1024)), 1) << dtype;
    }
  }
}

TEST_P(GradientPassComposed, OverflowByUnscalingAndAScaleThatCannotBeInvertedAreFound) {
  EXPECT_EQ(found_inf({at::full({3}, 1e38, at::kFloat)}, scalar(0x1p-10)), 1);
  EXPECT_EQ(found_inf({at::full({3}, 1e38, at::kFloat)}, scalar(1)), 0);
  for (const double scale : {0.0, 1e-42, HUGE_VAL, std::nan("")}) {
    EXPECT_EQ(found_inf({at::zeros({2})}, scalar(scale)), 1) << scale;
  }
}

TEST_P(GradientPassComposed, NormOfFiniteGradientsIsFinite) {
  EXPECT_EQ(norm({at::full({2}, kMax, at::kFloat)}), kMax) << "saturates";
  EXPECT_EQ(norm({at::full({1}, kMax, at::kFloat), at::full({3}, kMax, at::kFloat)}), kMax);
  EXPECT_EQ(found_inf({at::full({2}, kMax, at::kFloat)}), 0);
  EXPECT_FLOAT_EQ(norm({at::full({4}, 1e30, at::kFloat)}), 2e30F) << "its square is not FP32";
  EXPECT_FLOAT_EQ(norm({at::full({4}, 1e-30, at::kFloat)}), 2e-30F) << "nor is this one";
  EXPECT_FLOAT_EQ(norm({at::full({100}, 65504, at::kHalf)}), 655040);
  EXPECT_EQ(norm({at::zeros({4}), at::zeros({2}, at::kHalf)}), 0);
}

// In FP64 as in gradient_pass_test.cpp. In FP32: a quotient, a square and a sum of n terms, a root
// and the product with the largest for each tensor, and the same over the tensors; a sum of n
// positive terms in any order has at most n - 1 roundings, halved by the root.
TEST_P(GradientPassComposed, EqualsTheReferenceOnMixedListsOfAnyLayout) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    SCOPED_TRACE(seed);
    at::manual_seed(seed);
    const Tensor base = at::randn({30, 17});
    const std::vector<Tensor> gradients = {base,
                                           base.t().to(at::kHalf),
                                           base.slice(1, 3, 16, 7),
                                           base[0].to(at::kBFloat16),
                                           base[1].expand({5, 17}),
                                           at::randn({})};
    const GradientPass result = pass(gradients, scalar(3));
    const GradientPass expected = gradient_pass_reference(gradients, scalar(3));
    EXPECT_TRUE(at::equal(result.found_inf, expected.found_inf));
    const float norm = expected.norm.item<float>();
    const int64_t roundings = GetParam() == at::kDouble ? 2 : base.numel() / 2 + 6 + 6 + 5;
    EXPECT_NEAR(result.norm.item<float>(), norm, norm * static_cast<float>(roundings) * 0x1p-24F);
  }
}

// The bound of norms is that above, without the tensors.
TEST_P(GradientPassComposed, StatisticsAreThoseOfTheReference) {
  at::manual_seed(6);
  std::vector<Tensor> gradients = {at::empty({0}), at::zeros({4}, at::kHalf)};
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const Tensor exponents = at::randint(-40, 20, {300}).to(at::kFloat);
    gradients.push_back(at::randn({300}).mul(exponents.exp2()).to(dtype));
    gradients.push_back(at::tensor({kInf, 0.0F, 0x1p-25F, 65520.0F, 0x1p-130F}).to(dtype));
  }
  std::vector<GradientStatistics> found;
  std::vector<GradientStatistics> expected;
  (void)gradient_pass_composed(gradients, scalar(8), at::kCPU, GetParam(), &found);
  (void)gradient_pass_reference(gradients, scalar(8), &expected);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    SCOPED_TRACE(i);
    if (std::isfinite(expected[i].norm)) {
      const double roundings = GetParam() == at::kDouble ? 2 : 300.0 / 2 + 6;
      EXPECT_NEAR(found[i].norm, expected[i].norm, expected[i].norm * roundings * 0x1p-24);
    } else {
      EXPECT_FALSE(std::isfinite(found[i].norm));
    }
    found[i].norm = expected[i].norm = 0;
    EXPECT_EQ(found[i], expected[i]);
  }
  (void)gradient_pass_composed({}, {}, at::kCPU, GetParam(), &found);
  EXPECT_TRUE(found.empty());
}

TEST_P(GradientPassComposed, SumsDuplicatesOfSparseGradientsFirst) {
  const Tensor indices = at::zeros({1, 2}, at::kLong);
  const auto sparse = [&](float value, at::ScalarType dtype) {
    return at::sparse_coo_tensor(indices, at::full({2}, value, dtype), {4});
  };
  EXPECT_EQ(found_inf({sparse(6e4F, at::kHalf)}), 1);
  EXPECT_EQ(found_inf({sparse(3e38F, at::kFloat)}), 1);
  EXPECT_EQ(norm({sparse(1.5F, at::kFloat)}), 3);
}

TEST_P(GradientPassComposed, SumsManyDuplicatesOf16BitsInFp32) {
  for (const auto& [dtype, uses] : {std::pair{at::kBFloat16, 1000}, std::pair{at::kHalf, 6000}}) {
    const Tensor used =
        at::sparse_coo_tensor(at::zeros({1, uses}, at::kLong), at::full({uses}, 1, dtype), {4});
    EXPECT_EQ(norm({used}), uses) << dtype;
  }
}

TEST_P(GradientPassComposed, LearnsNothingOnTheHostAndChangesNoGradient) {
  const Tensor gradient = at::randn({100});
  const Tensor before = gradient.clone();
  const Tensor sparse = at::sparse_coo_tensor(at::zeros({1, 2}, at::kLong), at::ones({2}), {4});
  {
    const tensor::HostReads reads;
    (void)pass({gradient, sparse, gradient.to(at::kHalf)}, scalar(4));
    (void)unscale_factor(scalar(4));
    EXPECT_TRUE(tensor::HostReads::names().empty());
  }
  EXPECT_TRUE(at::equal(gradient, before));
}

TEST(GradientPassComposedErrors, NameTheGradientThatCannotBeRead) {
  const auto message = [](const std::vector<Tensor>& gradients, const Tensor& scale) {
    return message_of<InvalidArgument>(
        [&] { (void)gradient_pass_composed(gradients, scale, at::kCPU); });
  };
  EXPECT_EQ(message({at::zeros({1}), at::zeros({1}, at::kDouble)}, {}),
            "gradient_pass: gradient 1 is Double; valid: Float BFloat16 Half");
  EXPECT_EQ(message({at::zeros({1}, at::TensorOptions(at::kMeta).dtype(at::kFloat))}, {}),
            "gradient_pass: gradient 0 is on meta; move it to cpu");
  EXPECT_EQ(message({at::zeros({1})}, at::zeros({1})),
            "gradient_pass: scale is Float of shape [1]; pass a 0-d Float tensor");
}

TEST(UnscaleFactor, IsTheInverseOrNanWhereThereIsNone) {
  EXPECT_EQ(unscale_factor(scalar(8)).item<float>(), 0.125F);
  EXPECT_FALSE(unscale_factor({}).defined());
  for (const double scale : {0.0, 1e-42, HUGE_VAL, std::nan("")}) {
    EXPECT_TRUE(std::isnan(unscale_factor(scalar(scale)).item<float>())) << scale;
  }
}

}  // namespace
}  // namespace mantissa::ops
