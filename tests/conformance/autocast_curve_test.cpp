// The same model, weights and batches under amp::Autocast and under LibTorch's own at::autocast.

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "mantissa/amp/autocast.h"
#include "mantissa/base/random.h"
#include "mantissa/models/transformer.h"
#include "mantissa/optim/optimizer.h"

namespace mantissa {
namespace {

constexpr uint64_t kSeed = 20;
constexpr int kSteps = 20;

/// LibTorch ships no guard for its autocast; these are the parts of one.
class LibTorchAutocast {
 public:
  explicit LibTorchAutocast(at::ScalarType dtype) {
    at::autocast::set_autocast_dtype(at::kCPU, dtype);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::increment_nesting();
  }
  ~LibTorchAutocast() {
    if (at::autocast::decrement_nesting() == 0) {
      at::autocast::clear_cache();
    }
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
  LibTorchAutocast(const LibTorchAutocast&) = delete;
  LibTorchAutocast& operator=(const LibTorchAutocast&) = delete;
};

at::Tensor random_tokens(Random& random) {
  std::vector<int64_t> ids(96);  // 4 sequences of 24
  for (int64_t& id : ids) {
    id = 7 + static_cast<int64_t>(random.below(4));
  }
  return at::tensor(ids, at::kLong).view({4, 24});
}

struct Curve {
  std::vector<float> losses;
  std::vector<at::Tensor> parameters;
};

template <typename Region>
Curve train(const Region& region) {
  // LibTorch's autocast does not know the fused one.
  models::Transformer model({.layers = 2, .width = 32, .heads = 2, .fused = false}, kSeed);
  optim::Optimizer optimizer(model.parameters(), {.kind = optim::Kind::adamw});
  Random random(kSeed, 1);
  Curve curve;
  for (int step = 0; step < kSteps; ++step) {
    const at::Tensor tokens = random_tokens(random);
    const at::Tensor targets = random_tokens(random);
    at::Tensor loss;
    region([&] { loss = model.loss(tokens, targets); });
    loss.backward();
    optimizer.step({.lr = 1e-2});
    optimizer.zero_grad();
    curve.losses.push_back(loss.item<float>());
  }
  for (const tensor::Parameter& parameter : model.parameters()) {
    curve.parameters.push_back(parameter.value.detach().clone());
  }
  return curve;
}

class AutocastCurve : public ::testing::TestWithParam<numerics::Format> {
 protected:
  void SetUp() override {
    threads_ = at::get_num_threads();
    at::set_num_threads(1);
  }
  void TearDown() override { at::set_num_threads(threads_); }

 private:
  int threads_ = 1;
};

TEST_P(AutocastCurve, EqualsLibTorchsBitForBitOverTwentySteps) {
  amp::Policy policy = amp::find_policy("torch-cpu");
  policy.compute = GetParam();
  const Curve ours = train([&](const auto& forward) {
    const amp::Autocast region(policy);
    forward();
  });
  const Curve theirs = train([&](const auto& forward) {
    const LibTorchAutocast region(GetParam() == numerics::Format::bf16 ? at::kBFloat16 : at::kHalf);
    forward();
  });
  const Curve without = train([](const auto& forward) { forward(); });
  EXPECT_EQ(ours.losses, theirs.losses);
  EXPECT_NE(ours.losses, without.losses) << "nothing was cast";
  for (size_t i = 0; i < ours.parameters.size(); ++i) {
    EXPECT_TRUE(at::equal(ours.parameters[i], theirs.parameters[i])) << "parameter " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, AutocastCurve,
                         ::testing::Values(numerics::Format::bf16, numerics::Format::fp16),
                         [](const auto& test) {
                           return std::string(numerics::to_string(test.param));
                         });

}  // namespace
}  // namespace mantissa
