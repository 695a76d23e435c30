// mantissa::linear_cross_entropy in regions: what the policy makes of its arguments.

#include <string>

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "mantissa/amp/autocast.h"
#include "mantissa/amp/parameter_formats.h"
#include "mantissa/base/error.h"
#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/ops/linear_cross_entropy.h"
#include "mantissa/tensor/scope.h"

namespace mantissa {
namespace {

class FusedLoss : public ::testing::Test {
 protected:
  void SetUp() override {
    ops::install_cpu_kernels();
    at::manual_seed(31);
    x_ = at::randn({12, 5}).requires_grad_();
    w_ = at::randn({7, 5}).requires_grad_();
    targets_ = at::randint(7, {12}, at::kLong);
  }

  at::Tensor loss() const { return ops::linear_cross_entropy(x_, w_, {}, targets_); }

  // Of arguments cast by hand.
  at::Tensor loss_in(at::ScalarType dtype) const {
    return ops::linear_cross_entropy(x_.to(dtype), w_.to(dtype), {}, targets_);
  }

  at::Tensor x_;
  at::Tensor w_;
  at::Tensor targets_;
  ops::CpuKernelsGuard kernels_{ops::CpuKernels::ours};
};

TEST_F(FusedLoss, IsLoweredAsLinearAndItsLossIsFp32) {
  for (const std::string& name : amp::policy_names()) {
    SCOPED_TRACE(name);
    const amp::Policy policy = amp::find_policy(name);
    const amp::ParameterFormats formats(policy, {});
    at::Tensor actual;
    at::ScalarType dtype{};
    {
      const amp::Autocast region(policy, formats);
      dtype = at::linear(x_, w_).scalar_type();
      actual = loss();
    }
    EXPECT_EQ(dtype == at::kFloat, name == "fp32");
    EXPECT_EQ(actual.scalar_type(), at::kFloat);
    EXPECT_TRUE(at::equal(actual, loss_in(dtype)));
  }
}

TEST_F(FusedLoss, GradientsOfFp32ParametersAreFp32AndRoundedOnceToTheFormat) {
  at::Tensor loss_of_region;
  {
    const amp::Autocast region(amp::find_policy("torch-fixed compute=fp16"));
    loss_of_region = loss();
  }
  loss_of_region.mul(1024).backward();
  const at::Tensor of_x = x_.grad().clone();
  const at::Tensor of_w = w_.grad().clone();
  x_.mutable_grad().reset();
  w_.mutable_grad().reset();
  loss_in(at::kHalf).mul(1024).backward();
  EXPECT_EQ(of_w.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(of_w, of_w.to(at::kHalf).to(at::kFloat)));
  EXPECT_TRUE(at::equal(of_x, x_.grad()));
  EXPECT_TRUE(at::equal(of_w, w_.grad()));
}

TEST_F(FusedLoss, AScopeAndARuleOfItsOwnKeepItInFp32) {
  {
    const amp::Autocast region(amp::find_policy("torch-fixed scope:head=fp32"));
    const tensor::Scope scope("head");
    EXPECT_TRUE(at::equal(loss(), loss_in(at::kFloat)));
  }
  const amp::Autocast region(amp::find_policy("torch-fixed mantissa::linear_cross_entropy=fp32"));
  EXPECT_TRUE(at::equal(loss(), loss_in(at::kFloat)));
  EXPECT_EQ(at::linear(x_, w_).scalar_type(), at::kBFloat16);
}

}  // namespace
}  // namespace mantissa
