#include "mantissa/tensor/rollback.h"

#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/instance_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"

namespace mantissa::tensor {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

at::Tensor flag(float value) { return at::full({}, value, at::kFloat); }

struct BatchNorm {
  at::Tensor mean = at::zeros({2});
  at::Tensor var = at::ones({2});
  at::Tensor batches = at::zeros({}, at::kLong);

  void see(const at::Tensor& x) {
    at::batch_norm(x, {}, {}, mean, var, /*training=*/true, /*momentum=*/0.1, 1e-5, false);
    batches.add_(1);
  }
};

TEST(Rollback, StatisticsOfASkippedStepAreThoseBeforeIt) {
  BatchNorm norm;
  Rollback rollback({norm.mean, norm.var, norm.batches});
  norm.see(at::tensor({1.0F, kInf, 2.0F, 1.0F, 3.0F, 1.0F}).view({3, 2}));
  ASSERT_FALSE(norm.mean.isfinite().all().item<bool>());
  rollback.undo_if(flag(1));
  EXPECT_TRUE(at::equal(norm.mean, at::zeros({2})));
  EXPECT_TRUE(at::equal(norm.var, at::ones({2})));
  EXPECT_EQ(norm.batches.item<int64_t>(), 0);

  rollback.remember();
  norm.see(at::tensor({1.0F, 4.0F, 2.0F, 5.0F, 3.0F, 6.0F}).view({3, 2}));
  rollback.undo_if(flag(0));
  // 0.9 * 0 + 0.1 * {2, 5}; the unbiased variance of both columns is 1.
  EXPECT_FLOAT_EQ(norm.mean[0].item<float>(), 0.2F);
  EXPECT_FLOAT_EQ(norm.mean[1].item<float>(), 0.5F);
  EXPECT_FLOAT_EQ(norm.var[0].item<float>(), 1.0F);
  EXPECT_EQ(norm.batches.item<int64_t>(), 1);
}

// Whatever made them not finite, and in which layer: also 1e30, whose square is beyond FP32.
TEST(Rollback, StatisticsOfEveryLayerAreThoseBeforeTheSkippedSteps) {
  using Layer =
      std::function<void(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& var)>;
  const std::vector<std::pair<const char*, Layer>> layers = {
      {"batch_norm",
       [](const auto& x, const auto& mean, const auto& var) {
         at::batch_norm(x, {}, {}, mean, var, true, 0.1, 1e-5, false);
       }},
      {"instance_norm",
       [](const auto& x, const auto& mean, const auto& var) {
         at::instance_norm(x, {}, {}, mean, var, true, 0.1, 1e-5, false);
       }},
      {"an average of one's own", [](const auto& x, const auto& mean, const auto& var) {
         mean.lerp_(x.mean({0, 2}), 0.1);
         var.lerp_(x.square().mean({0, 2}), 0.1);
       }}};
  for (const auto& [name, layer] : layers) {
    for (const float bad : {kInf, -kInf, std::numeric_limits<float>::quiet_NaN(), 1e30F}) {
      SCOPED_TRACE(::testing::Message() << name << " " << bad);
      const at::Tensor mean = at::full({2}, 0.5F);
      const at::Tensor var = at::full({2}, 2.0F);
      Rollback rollback({mean, var, at::zeros({0})});
      at::Tensor x = at::ones({3, 2, 4});
      x[1][0][2] = bad;
      for (int step = 0; step < 2; ++step) {
        rollback.remember();
        layer(x, mean, var);
        ASSERT_FALSE(var.isfinite().all().item<bool>());
        rollback.undo_if(flag(1));
        EXPECT_TRUE(at::equal(mean, at::full({2}, 0.5F)));
        EXPECT_TRUE(at::equal(var, at::full({2}, 2.0F)));
      }
      rollback.remember();
      layer(at::ones({3, 2, 4}), mean, var);
      rollback.undo_if(flag(0));
      EXPECT_FLOAT_EQ(mean[0].item<float>(), 0.9F * 0.5F + 0.1F);
    }
  }
}

TEST(Rollback, PutsBackTheValuesOfTheLastRemember) {
  const at::Tensor counter = at::zeros({3}, at::kLong);
  Rollback rollback({counter});
  counter.add_(1);
  rollback.remember();
  counter.add_(1);
  rollback.undo_if(flag(1));
  EXPECT_TRUE(at::equal(counter, at::ones({3}, at::kLong)));
}

TEST(Rollback, KeepsEveryDtypeAndLayout) {
  const at::Tensor values = at::arange(6, at::kBFloat16).view({2, 3}).t();
  const at::Tensor before = values.clone();
  const Rollback rollback({values});
  values.zero_();
  rollback.undo_if(flag(2));
  EXPECT_TRUE(at::equal(values, before));
  EXPECT_EQ(values.scalar_type(), at::kBFloat16);
}

TEST(Rollback, RefusesAFlagOfMoreThanOneValue) {
  EXPECT_THROW(Rollback({}).undo_if(at::zeros({2})), InvalidArgument);
  EXPECT_THROW(Rollback({at::Tensor()}), InvalidArgument);
}

}  // namespace
}  // namespace mantissa::tensor
