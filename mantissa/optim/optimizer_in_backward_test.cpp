#include "mantissa/optim/optimizer_in_backward.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/tensor/recompute.h"

namespace mantissa::optim {
namespace {

using at::Tensor;
using testing::HasSubstr;

constexpr int64_t kLayers = 6;
constexpr int64_t kWidth = 128;

// Square layers of which the first is used again as the last one.
tensor::ParameterList network(at::ScalarType dtype) {
  at::manual_seed(3);
  tensor::ParameterList parameters;
  for (int64_t i = 0; i < kLayers; ++i) {
    const Tensor weight = at::randn({kWidth, kWidth}).mul(0.1).to(dtype).requires_grad_();
    parameters.push_back({"w" + std::to_string(i), weight});
  }
  parameters.push_back({"frozen", at::ones({kWidth}, dtype)});
  return parameters;
}

Tensor loss_of(const tensor::ParameterList& parameters, int64_t step) {
  at::manual_seed(100 + step);
  Tensor x = at::randn({32, kWidth}).to(parameters[0].value.scalar_type());
  for (int64_t i = 0; i < kLayers; ++i) {
    x = at::relu(at::linear(x, parameters[i].value));
  }
  return at::linear(x, parameters[0].value).to(at::kFloat).square().mean();
}

void expect_equal_states(const Optimizer& a, const Optimizer& b) {
  const tensor::StateDict ours = a.state_dict();
  const tensor::StateDict theirs = b.state_dict();
  ASSERT_EQ(ours.tensors().size(), theirs.tensors().size());
  for (const auto& [name, tensor] : ours.tensors()) {
    EXPECT_TRUE(at::equal(tensor, theirs.tensor(name))) << name;
  }
}

// Looks at an optimizer whenever a gradient is complete.
class GradientBytes : public torch::autograd::PostAccumulateGradHook {
 public:
  GradientBytes(const Optimizer& optimizer, int64_t& peak) : optimizer_(optimizer), peak_(peak) {}

  void operator()(const torch::autograd::Variable&) override {
    peak_ = std::max(peak_, optimizer_.bytes().gradients);
  }

 private:
  const Optimizer& optimizer_;
  int64_t& peak_;
};

TEST(OptimizerInBackward, IsTheOrdinaryStepBitForBit) {
  struct Case {
    at::ScalarType dtype;
    OptimizerOptions options;
  };
  for (const auto& [dtype, options] : std::vector<Case>{
           {at::kFloat, {}},
           {at::kFloat, {.kind = Kind::sgd}},
           {at::kFloat, {.moments = MomentFormat::bf16, .seed = 4}},
           {at::kBFloat16, {}},
           {at::kBFloat16, {.masters = Masters::split}},
           {at::kBFloat16, {.masters = Masters::stochastic, .seed = 5}},
           {at::kBFloat16, {.masters = Masters::none}},
       }) {
    SCOPED_TRACE(std::string(to_string(options.masters)) + " " + c10::toString(dtype));
    const tensor::ParameterList ours = network(dtype);
    const tensor::ParameterList theirs = network(dtype);
    Optimizer fast(ours, options);
    Optimizer plain(theirs, options);
    OptimizerInBackward in_backward(fast);
    const Tensor scale = at::full({}, 64, at::kFloat);
    for (int64_t step = 0; step < 4; ++step) {
      in_backward.begin({.lr = 1e-2, .scale = scale});
      loss_of(ours, step).mul(scale).backward();
      const InBackwardReport report = in_backward.finish();
      loss_of(theirs, step).mul(scale).backward();
      const GradientReport gradients = plain.read_gradients(scale);
      EXPECT_EQ(report.outcome,
                plain.step({.lr = 1e-2, .scale = scale, .found_inf = gradients.found_inf}));
      plain.zero_grad();
      // Each parameter's norm is rounded to FP32, and the total again.
      EXPECT_NEAR(report.norm, gradients.norm.item<double>(), 0x1p-22 * report.norm);
    }
    EXPECT_EQ(fast.steps(), 4);
    EXPECT_EQ(fast.bytes().gradients, 0);
    expect_equal_states(fast, plain);
    for (size_t i = 0; i < ours.size(); ++i) {
      EXPECT_TRUE(at::equal(ours[i].value, theirs[i].value)) << ours[i].name;
    }
  }
}

// Weights change as backward goes on, but what is computed again comes before: of the first weight,
// which is used twice, too.
TEST(OptimizerInBackward, GoesWithRecomputation) {
  const auto loss_with = [](const tensor::ParameterList& parameters, bool in_groups) {
    using tensor::Tensors;
    Tensors x = {at::full({32, kWidth}, 0.5F)};
    for (int64_t i = 0; i < kLayers; i += 2) {
      const auto layer = [](const Tensor& weight) {
        return [weight](const Tensors& in) { return Tensors{at::relu(at::linear(in[0], weight))}; };
      };
      const auto both = [in_groups, first = layer(parameters[i].value),
                         second = layer(parameters[i + 1].value)](const Tensors& in) {
        return in_groups ? tensor::recompute(tensor::recompute(in, first), second)
                         : second(first(in));
      };
      x = in_groups ? tensor::recompute(x, both) : both(x);
    }
    return at::linear(x[0], parameters[0].value).square().mean();
  };
  const auto run = [&](bool in_groups) {
    const tensor::ParameterList parameters = network(at::kFloat);
    Optimizer optimizer(parameters, {});
    OptimizerInBackward in_backward(optimizer);
    for (int step = 0; step < 3; ++step) {
      in_backward.begin({.lr = 1e-2});
      loss_with(parameters, in_groups).backward();
      EXPECT_EQ(in_backward.finish().outcome, StepOutcome::applied);
    }
    return optimizer.state_dict();
  };
  const tensor::StateDict kept = run(false);
  const tensor::StateDict again = run(true);
  for (const auto& [name, tensor] : kept.tensors()) {
    EXPECT_TRUE(at::equal(tensor, again.tensor(name))) << name;
  }
}

TEST(OptimizerInBackward, OneGradientIsAliveAtATime) {
  constexpr int64_t kBytes = kWidth * kWidth * 4;
  const auto peak = [&](bool in_backward) {
    const tensor::ParameterList parameters = network(at::kFloat);
    Optimizer optimizer(parameters, {});
    int64_t bytes = 0;
    for (const tensor::Parameter& parameter : parameters) {
      if (parameter.value.requires_grad()) {
        torch::autograd::impl::set_post_acc_grad_hooks(
            parameter.value, std::make_unique<GradientBytes>(optimizer, bytes));
      }
    }
    std::optional<OptimizerInBackward> steps;
    if (in_backward) {
      steps.emplace(optimizer);
      steps->begin({.lr = 1e-2});
    }
    loss_of(parameters, 0).backward();
    return bytes;
  };
  EXPECT_EQ(peak(false), kLayers * kBytes);
  EXPECT_EQ(peak(true), kBytes);
}

class OptimizerInBackwardErrors : public testing::Test {
 protected:
  std::string begin_message(const StepOptions& options) {
    return message_of<InvalidArgument>([&] { in_backward_.begin(options); });
  }

  std::string backward_message(const Tensor& loss) {
    return message_of<InvalidArgument>([&] { loss.backward(); });
  }

  Tensor loss(double factor = 1) const { return w_.mul(factor).sum(); }

  Tensor w_ = at::ones({3}).requires_grad_();
  Optimizer optimizer_{{{"w", w_}}, {}};
  OptimizerInBackward in_backward_{optimizer_};
};

TEST_F(OptimizerInBackwardErrors, SayWhatNeedsAllGradients) {
  EXPECT_EQ(begin_message({.lr = 1, .clip_factor = at::ones({})}),
            "optimizer in backward: a clip_factor needs the norm of all gradients, and most are "
            "gone when it is known; leave it out, or step after backward");
  EXPECT_EQ(begin_message({.lr = 1, .found_inf = at::zeros({})}),
            "optimizer in backward: found_inf skips a whole step, and most of it is done when it "
            "is known; leave it out with FP32 and BF16, or step after backward");
  EXPECT_EQ(begin_message({}), "optimizer: lr is nan; it must be finite and not negative");
  in_backward_.begin({.lr = 1});
  loss().backward();
  EXPECT_EQ(backward_message(loss()),
            "optimizer in backward: parameter \"w\" got a second gradient in one step; sums over "
            "microbatches or several losses need all of them: step after backward");
}

TEST_F(OptimizerInBackwardErrors, SayWhichCallIsMissing) {
  EXPECT_EQ(backward_message(loss()),
            "optimizer in backward: parameter \"w\" got a gradient outside of a step; call begin() "
            "before backward and finish() after it");
  EXPECT_EQ(begin_message({.lr = 1}),
            "optimizer in backward: parameter \"w\" has a gradient from before; call zero_grad()");
  optimizer_.zero_grad();
  EXPECT_EQ(message_of<InvalidArgument>([&] { (void)in_backward_.finish(); }),
            "optimizer in backward: finish() without begin(); call begin() before backward");
  in_backward_.begin({.lr = 1});
  EXPECT_EQ(begin_message({.lr = 1}),
            "optimizer in backward: begin() after begin(); call finish() after backward");
  EXPECT_EQ(in_backward_.finish().outcome, StepOutcome::nothing_to_do);
  EXPECT_EQ(optimizer_.steps(), 0);
}

TEST_F(OptimizerInBackwardErrors, AGradientThatIsNotFiniteIsNotApplied) {
  in_backward_.begin({.lr = 1});
  EXPECT_EQ(message_of<Error>([&] { loss(HUGE_VAL).backward(); }),
            "optimizer in backward: the gradient of parameter \"w\" is not finite and is not "
            "applied, but those before it were; go on from a checkpoint, or step after backward "
            "with found_inf");
  EXPECT_TRUE(at::equal(w_, at::ones({3})));
  optimizer_.zero_grad();
  in_backward_.begin({.lr = 1});
  loss().backward();
  EXPECT_EQ(in_backward_.finish().outcome, StepOutcome::applied);
}

TEST(OptimizerInBackward, IsForFusedPassesAndEndsWithItsObject) {
  const Tensor w = at::ones({3}).requires_grad_();
  Optimizer composed({{"w", w}}, {.fused = false});
  EXPECT_EQ(message_of<Unsupported>([&] { OptimizerInBackward{composed}; }),
            "optimizer in backward: the optimizer is on cpu and not fused; pass one of fused "
            "passes on cpu, or step after backward");
  Optimizer fused({{"w", w}}, {});
  { const OptimizerInBackward in_backward(fused); }
  w.sum().backward();
  EXPECT_TRUE(at::equal(w.grad(), at::ones({3})));
}

TEST(OptimizerInBackward, NamesAParameterThatItDoesNotWatch) {
  const Tensor w = at::ones({3}).requires_grad_();
  const Tensor late = at::ones({3});
  Optimizer optimizer({{"w", w}, {"late", late}}, {});
  OptimizerInBackward in_backward(optimizer);
  late.requires_grad_();
  in_backward.begin({.lr = 1});
  w.add(late).sum().backward();
  EXPECT_THAT(message_of<InvalidArgument>([&] { (void)in_backward.finish(); }),
              HasSubstr("the gradient of parameter \"late\" was not applied"));
}

}  // namespace
}  // namespace mantissa::optim
