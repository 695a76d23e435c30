#include "mantissa/tensor/rollback.h"

#include <limits>

#include <ATen/ops/arange.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
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
