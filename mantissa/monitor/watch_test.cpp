#include "mantissa/monitor/watch.h"

#include <memory>
#include <optional>

#include <gmock/gmock.h>

#include <ATen/Context.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/tensor/scope.h"

namespace mantissa::monitor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two layers, trained by gradient descent; `watch` may be null.
struct Training {
  at::Tensor w1;
  at::Tensor w2;

  Training() {
    at::manual_seed(11);
    w1 = at::randn({16, 8}).requires_grad_();
    w2 = at::randn({1, 16}).requires_grad_();
  }

  tensor::ParameterList parameters() const { return {{"first.w", w1}, {"second.w", w2}}; }

  at::Tensor step() {
    const at::Tensor x = at::randn({32, 8});
    const at::Tensor loss =
        at::mse_loss(at::linear(at::relu(at::linear(x, w1)), w2), x.sum(1, true));
    loss.backward();
    const at::NoGradGuard no_grad;
    for (const at::Tensor& w : {w1, w2}) {
      w.sub_(w.grad().mul(1e-3));
      w.mutable_grad() = at::Tensor();
    }
    return loss.detach();
  }
};

TEST(Watch, LooksAtTheFirstAndEveryNthStep) {
  Training training;
  std::vector<int64_t> steps;
  Watch watch({.parameters = training.parameters(), .every = 3, .observe = [&](const Sighting& s) {
                 steps.push_back(s.step);
                 EXPECT_FALSE(s.ranges.all().empty());
               }});
  for (int i = 0; i < 7; ++i) {
    const auto look = watch.step();
    training.step();
  }
  EXPECT_THAT(steps, ElementsAre(1, 4, 7));
  EXPECT_EQ(watch.cost().steps, 7);
  EXPECT_EQ(watch.cost().looked_at, 3);
  EXPECT_GT(watch.cost().cost_s, 0);
  EXPECT_LT(watch.cost().cost_s, watch.cost().steps_s);
}

TEST(Watch, ChangesNoBitOfATraining) {
  const auto weights = [](bool is_watched) {
    Training training;
    std::optional<Watch> watch;
    if (is_watched) {
      watch.emplace(WatchOptions{.parameters = training.parameters(), .every = 2});
    }
    for (int i = 0; i < 9; ++i) {
      if (watch) {
        const auto look = watch->step();
        training.step();
      } else {
        training.step();
      }
    }
    return training;
  };
  const Training plain = weights(false);
  const Training watched = weights(true);
  EXPECT_TRUE(at::equal(plain.w1, watched.w1));
  EXPECT_TRUE(at::equal(plain.w2, watched.w2));
}

TEST(Watch, ALossThatIsNotFiniteHasTheNextStepLookedAt) {
  const at::Tensor w = at::full({4}, 1.0F).requires_grad_();
  Watch watch({.every = 100});
  for (int i = 0; i < 5; ++i) {
    const auto look = watch.step();
    const tensor::Scope scope("decoder");
    const at::Tensor loss = w.sub(i < 2 ? 0.5 : 1.0).log().sum();
    EXPECT_EQ(watch.check(loss), i < 2);
  }
  ASSERT_TRUE(watch.first_nonfinite().has_value());
  EXPECT_EQ(watch.first_nonfinite()->step, 4) << "the loss of step 3 was the first";
  EXPECT_EQ(watch.first_nonfinite()->origin.operation, "aten::log");
  EXPECT_THAT(watch.report(),
              HasSubstr("step 4: the first value that is not finite is -inf from aten::log in "
                        "fp32 (decoder), whose self is 0\n"));
}

TEST(Watch, ReportsWorstFirstAndItsCost) {
  const at::Tensor w = at::full({4}, 300.0F).requires_grad_();
  Watch watch({.every = 1});
  {
    const auto look = watch.step();
    const tensor::Scope scope("head");
    w.mul(300).amax().mul(1e-4).backward();
  }
  const std::string report = watch.report();
  EXPECT_THAT(report, HasSubstr("activation head aten::mul: overflow, largest 90000, "
                                "-0.5 bits to the largest of fp16; scope:head=fp32, or bf16\n"));
  EXPECT_THAT(report, HasSubstr("looked at 1 of 1 steps, which cost "));
  EXPECT_LT(report.find("overflow"), report.find("gradient"));
}

TEST(Watch, RefusesStepsWithinOneAnotherAndNone) {
  Watch watch;
  const auto look = watch.step();
  EXPECT_EQ(message_of<InvalidArgument>([&] { const auto second = watch.step(); }),
            "watch: the step before has not ended; let what step() returned go out of scope");
  EXPECT_EQ(message_of<InvalidArgument>([] { const Watch none({.every = 0}); }),
            "watch: every is 0; use 1 or more steps");
}

// at::isfinite compares with infinity, which is a number of its code and no value of the step.
TEST(Watch, WhoAsksWhetherAValueIsFiniteMakesNoneThatIsNot) {
  Training training;
  Watch watch({.parameters = training.parameters(), .every = 1});
  {
    const auto look = watch.step();
    const at::Tensor loss = training.step();
    EXPECT_TRUE(watch.check(loss));
    EXPECT_TRUE(loss.isfinite().all().item<bool>());
  }
  for (const Range& range : watch.ranges().all()) {
    EXPECT_EQ(range.values.num_nonfinite(), 0) << range.name;
  }
}

TEST(Watch, ItsEndEndsAStepThatOutlivesIt) {
  Training training;
  auto watch = std::make_unique<Watch>(WatchOptions{.every = 1});
  {
    const auto look = watch->step();
    training.step();
    watch.reset();
  }
  Watch next({.every = 1});
  {
    const auto look = next.step();
    training.step();
  }
  EXPECT_FALSE(next.ranges().all().empty()) << "the first does not trace any more";
}

TEST(Watch, AStepThatThrowsEndsIt) {
  Watch watch({.every = 1});
  EXPECT_THROW(
      {
        const auto look = watch.step();
        throw std::runtime_error("out of data");
      },
      std::runtime_error);
  const auto look = watch.step();
  EXPECT_EQ(watch.cost().looked_at, 2);
}

TEST(Watch, WhatItsObserverThrowsComesWithTheNextStep) {
  Watch watch({.every = 1, .observe = [](const Sighting&) { throw IoError("disk full"); }});
  { const auto look = watch.step(); }
  EXPECT_EQ(message_of<IoError>([&] { const auto look = watch.step(); }), "disk full");
}

}  // namespace
}  // namespace mantissa::monitor
