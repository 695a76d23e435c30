// Whole training steps of our models by our operations, with one thread and with two.
#include <memory>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/roll.h>
#include <gtest/gtest.h>

#include "mantissa/amp/autocast.h"
#include "mantissa/models/hyena.h"
#include "mantissa/models/transformer.h"
#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/optim/optimizer.h"

namespace mantissa {
namespace {

struct Trained {
  std::vector<float> losses;
  std::vector<at::Tensor> parameters;
};

std::unique_ptr<models::LanguageModel> make_model(const std::string& kind) {
  if (kind == "hyena") {
    return std::make_unique<models::Hyena>(models::HyenaOptions{.vocabulary = 12,
                                                                .width = 96,
                                                                .order = 3,
                                                                .filter = {.positions = 150},
                                                                .dropout = 0.1},
                                           41);
  }
  return std::make_unique<models::Transformer>(
      models::TransformerOptions{
          .vocabulary = 12, .layers = 2, .width = 96, .heads = 3, .dropout = 0.1},
      41);
}

Trained train(const std::string& kind, const std::string& policy, int threads) {
  at::set_num_threads(threads);
  at::manual_seed(41);
  const auto model = make_model(kind);
  optim::Optimizer optimizer(model->parameters(), {.kind = optim::Kind::adamw});
  Trained result;
  for (int step = 0; step < 3; ++step) {
    const at::Tensor tokens = at::randint(12, {4, 150}, at::kLong);
    at::Tensor loss;
    {
      const amp::Autocast region(amp::find_policy(policy));
      loss = model->loss(tokens, tokens.roll(-1, 1));
    }
    loss.backward();
    optimizer.step({.lr = 1e-2});
    optimizer.zero_grad();
    result.losses.push_back(loss.item<float>());
  }
  for (const tensor::Parameter& parameter : model->parameters()) {
    result.parameters.push_back(parameter.value.detach());
  }
  return result;
}

TEST(WholeSteps, DoNotDependOnTheNumberOfThreads) {
  ops::install_cpu_kernels();
  const ops::CpuKernelsGuard ours(ops::CpuKernels::ours);
  const int before = at::get_num_threads();
  for (const char* kind : {"transformer", "hyena"}) {
    for (const char* policy : {"torch compute=bf16", "torch compute=fp16", "lean compute=bf16"}) {
      SCOPED_TRACE(std::string(kind) + " " + policy);
      const Trained one = train(kind, policy, 1);
      const Trained two = train(kind, policy, 2);
      EXPECT_EQ(one.losses, two.losses);
      EXPECT_NE(one.losses[0], one.losses[2]);
      for (size_t i = 0; i < one.parameters.size(); ++i) {
        EXPECT_TRUE(at::equal(one.parameters[i], two.parameters[i])) << i;
      }
    }
  }
  at::set_num_threads(before);
}

}  // namespace
}  // namespace mantissa
