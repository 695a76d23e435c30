#include <cmath>

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/optim/optimizer.h"

// Through the public class: what a group does shows in the weights after a step of SGD.
namespace mantissa::optim {
namespace {

using at::Tensor;

tensor::ParameterList parameters() {
  tensor::ParameterList list;
  for (const char* name :
       {"embed.weight", "blocks.0.norm.weight", "blocks.0.mlp.weight", "head.bias"}) {
    list.push_back({name, at::ones({1}).requires_grad_()});
  }
  return list;
}

// 1 - lr * (gradient 1) - lr * decay, with lr = 0.25: exact in FP32.
std::vector<float> after_a_step(OptimizerOptions options) {
  options.kind = Kind::sgd;
  options.momentum = 0;
  const tensor::ParameterList list = parameters();
  Optimizer optimizer(list, options);
  std::vector<float> result;
  for (const auto& [name, value] : list) {
    value.mutable_grad() = at::ones({1});
  }
  optimizer.step({.lr = 0.25});
  for (const auto& [name, value] : list) {
    result.push_back(value.item<float>());
  }
  return result;
}

std::string message(const OptimizerOptions& options) {
  try {
    const Optimizer optimizer(parameters(), options);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

TEST(ParameterGroups, NormsAndBiasesAreNotDecayedByDefault) {
  EXPECT_EQ(after_a_step({.weight_decay = 0.5}), (std::vector<float>{0.625, 0.75, 0.625, 0.75}));
}

TEST(ParameterGroups, AGroupScalesTheRateAndSetsItsOwnDecay) {
  const OptimizerOptions options = {
      .weight_decay = 0.5,
      .groups = {{.names = {"embed.*"}, .lr_scale = 2}, {.names = {"*bias"}, .weight_decay = 1.0}}};
  EXPECT_EQ(after_a_step(options), (std::vector<float>{1 - 0.5 * 1.5, 0.75, 0.625, 0.5}));
}

TEST(ParameterGroups, NoDecayListsReplaceTheDefault) {
  EXPECT_EQ(after_a_step({.weight_decay = 0.5, .no_decay = {"embed.weight"}}),
            (std::vector<float>{0.75, 0.625, 0.625, 0.625}));
}

TEST(ParameterGroups, AGlobThatMatchesNothingIsAnErrorWithTheNearestName) {
  EXPECT_EQ(message({.groups = {{.names = {"embed.wieght"}}}}),
            "optimizer: groups: \"embed.wieght\" matches no parameter; did you mean "
            "\"embed.weight\"?");
  EXPECT_EQ(message({.no_decay = {"head.bais"}}),
            "optimizer: no_decay: \"head.bais\" matches no parameter; did you mean \"head.bias\"?");
}

TEST(ParameterGroups, AParameterOfTwoGroupsIsAnError) {
  EXPECT_EQ(message({.groups = {{.names = {"*weight"}}, {.names = {"blocks.*"}}}}),
            "optimizer: groups: parameter \"blocks.0.norm.weight\" is matched by two groups, of "
            "\"*weight\" and \"blocks.*\"; let it match one");
}

TEST(ParameterGroups, ValuesOutOfRangeAndIgnoredSettingsAreErrors) {
  EXPECT_EQ(message({.beta1 = 1}), "optimizer: beta1 is 1; valid: 0 to below 1");
  EXPECT_EQ(message({.beta2 = -0.5}), "optimizer: beta2 is -0.5; valid: 0 to below 1");
  EXPECT_EQ(message({.eps = 0}), "optimizer: eps is 0; valid: 1.17549e-38 to below inf");
  EXPECT_EQ(message({.weight_decay = std::nan("")}),
            "optimizer: weight_decay is nan; valid: 0 to below inf");
  EXPECT_EQ(message({.kind = Kind::sgd, .momentum = 1}),
            "optimizer: momentum is 1; valid: 0 to below 1");
  EXPECT_EQ(message({.decay = WeightDecay::l2}),
            "optimizer: decay is l2, which counts for sgd; use kind adam for an L2 penalty, adamw "
            "for decoupled decay");
  EXPECT_EQ(message({.kind = Kind::adam, .beta1 = 1}),
            "optimizer: beta1 is 1; valid: 0 to below 1");
  EXPECT_EQ(message({.kind = Kind::sgd, .momentum = 0, .moments = MomentFormat::blockwise8}),
            "optimizer: moments is blockwise8 and momentum is 0, so that there are none; give a "
            "momentum");
  EXPECT_EQ(message({.momentum_kind = Momentum::nesterov}),
            "optimizer: momentum_kind is nesterov, which adamw ignores; use sgd");
  EXPECT_EQ(message({.kind = Kind::sgd, .momentum = 0, .momentum_kind = Momentum::nesterov}),
            "optimizer: momentum_kind is nesterov and momentum is 0; give a momentum");
  EXPECT_EQ(message({.momentum = 0.5}),
            "optimizer: momentum is 0.5, which adamw ignores; leave it out");
  EXPECT_EQ(message({.kind = Kind::sgd, .beta2 = 0.5}),
            "optimizer: beta2 is 0.5, which sgd ignores; leave it out");
  EXPECT_EQ(message({.groups = {{.names = {"*"}, .lr_scale = -1}}}),
            "optimizer: lr_scale is -1; valid: 0 to below inf");
}

}  // namespace
}  // namespace mantissa::optim
