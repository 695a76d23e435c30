// Several losses, scalers and optimizers in one step: what docs/guides/loss-scaling.md shows.
#include <limits>

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "mantissa/amp/grad_scaler.h"
#include "mantissa/amp/loss_scaler.h"
#include "mantissa/optim/optimizer.h"

namespace mantissa::train {
namespace {

using amp::LossScaler;
using optim::Optimizer;

constexpr float kInf = std::numeric_limits<float>::infinity();

// It unscales by itself and is stepped with a LossScaler.
static_assert(!amp::SteppableOptimizer<Optimizer>);

const optim::OptimizerOptions kPlainSgd = {
    .kind = optim::Kind::sgd, .weight_decay = 0, .momentum = 0};

at::Tensor weight(at::ScalarType dtype = at::kFloat) {
  return at::full({1}, 10, dtype).requires_grad_();
}

// A loss whose gradient is `slope`.
at::Tensor loss(const at::Tensor& weight, float slope) { return weight.mul(slope).sum(); }

StepOutcome step(Optimizer& optimizer, const LossScaler& scaler,
                 const optim::GradientReport& report) {
  return optimizer.step({.lr = 1, .scale = scaler.value(), .found_inf = report.found_inf});
}

float value(const at::Tensor& tensor) { return tensor.item<float>(); }

TEST(SeveralLosses, OneScalerForTwoOptimizersSkipsEachOnItsOwn) {
  const at::Tensor a = weight();
  const at::Tensor b = weight();
  Optimizer first({{"a", a}}, kPlainSgd);
  Optimizer second({{"b", b}}, kPlainSgd);
  LossScaler scaler(at::kCPU);
  scaler.scale(loss(a, kInf)).backward();
  scaler.scale(loss(b, 2)).backward();
  const auto of_first = first.read_gradients(scaler.value());
  const auto of_second = second.read_gradients(scaler.value());
  EXPECT_EQ(step(first, scaler, of_first), StepOutcome::skipped);
  EXPECT_EQ(step(second, scaler, of_second), StepOutcome::applied);
  scaler.update({of_first.found_inf, of_second.found_inf});
  EXPECT_EQ(value(a), 10);
  EXPECT_EQ(value(b), 8);
  EXPECT_EQ(value(scaler.value()), 32768);
}

TEST(SeveralLosses, AnOptimizerWithoutGradientsHasNothingToDoAndFoundNothing) {
  Optimizer idle({{"a", weight()}}, kPlainSgd);
  LossScaler scaler(at::kCPU);
  const auto report = idle.read_gradients(scaler.value());
  EXPECT_EQ(step(idle, scaler, report), StepOutcome::nothing_to_do);
  EXPECT_EQ(value(report.found_inf), 0);
}

TEST(SeveralLosses, AParameterOfTwoOptimizersIsUnscaledOnce) {
  const at::Tensor shared = weight();
  Optimizer first({{"shared", shared}}, kPlainSgd);
  Optimizer second({{"shared", shared}}, kPlainSgd);
  LossScaler scaler(at::kCPU);
  scaler.scale(loss(shared, 2)).backward();
  for (Optimizer* optimizer : {&first, &second}) {
    EXPECT_EQ(step(*optimizer, scaler, optimizer->read_gradients(scaler.value())),
              StepOutcome::applied);
  }
  EXPECT_EQ(value(shared), 6);
  EXPECT_EQ(value(shared.grad()), 2 * 65536);
}

TEST(SeveralLosses, TwoLossesWithOneScaleAddUp) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor w = weight(dtype);
    Optimizer optimizer({{"w", w}}, kPlainSgd);
    LossScaler scaler(at::kCPU, {.initial = 1024});
    for (const float slope : {1.0F, 2.5F}) {
      scaler.scale(loss(w, slope)).backward();
      optimizer.accumulate_();
    }
    EXPECT_EQ(step(optimizer, scaler, optimizer.read_gradients(scaler.value())),
              StepOutcome::applied);
    EXPECT_EQ(value(w), 6.5) << dtype;
  }
}

TEST(SeveralLosses, ScalersOfTheirOwnMoveOnTheirOwn) {
  const at::Tensor a = weight();
  const at::Tensor b = weight();
  Optimizer first({{"a", a}}, kPlainSgd);
  Optimizer second({{"b", b}}, kPlainSgd);
  LossScaler scaler_a(at::kCPU, {.initial = 8, .growth_interval = 1});
  LossScaler scaler_b(at::kCPU, {.initial = 8, .growth_interval = 1});
  scaler_a.scale(loss(a, 1)).backward();
  scaler_b.scale(loss(b, kInf)).backward();
  const auto of_first = first.read_gradients(scaler_a.value());
  const auto of_second = second.read_gradients(scaler_b.value());
  EXPECT_EQ(step(first, scaler_a, of_first), StepOutcome::applied);
  EXPECT_EQ(step(second, scaler_b, of_second), StepOutcome::skipped);
  scaler_a.update(of_first.found_inf);
  scaler_b.update(of_second.found_inf);
  EXPECT_EQ(value(scaler_a.value()), 16);
  EXPECT_EQ(value(scaler_b.value()), 4);
}

// Gradients of FP16 weights that overflow at scale 1 train once the scale may fall below it; until
// then nothing but the scale changes.
TEST(SeveralLosses, LargeGradientsOfFp16WeightsNeedAScaleBelowOne) {
  for (const float slope : {1e5F, 1e6F, 1e8F}) {
    for (const float floor : {1.0F, 0x1p-14F}) {
      const at::Tensor w = weight(at::kHalf);
      Optimizer optimizer({{"w", w}}, kPlainSgd);
      LossScaler scaler(at::kCPU, {.floor = floor});
      StepOutcome outcome = StepOutcome::skipped;
      for (int i = 0; i < 40 && outcome == StepOutcome::skipped; ++i) {
        scaler.scale(loss(w.to(at::kFloat), slope)).backward();
        const auto report = optimizer.read_gradients(scaler.value());
        outcome = optimizer.step(
            {.lr = 1 / slope, .scale = scaler.value(), .found_inf = report.found_inf});
        scaler.update(report.found_inf);
        w.mutable_grad() = at::Tensor();
      }
      EXPECT_EQ(outcome, floor < 1 ? StepOutcome::applied : StepOutcome::skipped) << slope;
      if (floor < 1) {
        EXPECT_LE(value(scaler.value()) * slope, 65520) << slope;
        // lr times the gradient, which is rounded to FP16.
        EXPECT_NEAR(value(w), 9, 0x1p-10 + 0x1p-8) << slope;
      } else {
        EXPECT_EQ(value(w), 10) << slope;
        EXPECT_EQ(value(scaler.value()), 1) << slope;
      }
    }
  }
}

// Apex's num_losses. FP16 cannot tell 3 + 2^-20 from 3, but the FP32 master of 10 becomes
// 7 - 2^-20.
TEST(SeveralLosses, AScaleForEachLossOfOneOptimizer) {
  const at::Tensor w = weight(at::kHalf);
  Optimizer optimizer({{"w", w}}, kPlainSgd);
  LossScaler small(at::kCPU, {.initial = 65536, .growth_interval = 1});
  LossScaler large(at::kCPU, {.initial = 8, .growth_interval = 1});
  small.scale(loss(w.to(at::kFloat), 0x1p-20F)).backward();
  const auto of_small = optimizer.accumulate_(small.value());
  large.scale(loss(w.to(at::kFloat), 3)).backward();
  const auto of_large = optimizer.accumulate_(large.value());
  EXPECT_EQ(optimizer.step({.lr = 1, .found_inf = optimizer.read_gradients().found_inf}),
            StepOutcome::applied);
  EXPECT_EQ(value(optimizer.master("w")), 7 - 0x1p-20F);
  EXPECT_EQ(value(of_small.norm), 0x1p-20F);
  EXPECT_EQ(value(of_large.norm), 3);
  small.update(of_small.found_inf);
  large.update(of_large.found_inf);
  EXPECT_EQ(value(small.value()), 131072);
  EXPECT_EQ(value(large.value()), 16);
}

TEST(SeveralLosses, ALossThatOverflowsSkipsTheStepAndLowersItsOwnScaleOnly) {
  const at::Tensor w = weight(at::kHalf);
  Optimizer optimizer({{"w", w}}, kPlainSgd);
  LossScaler fits(at::kCPU, {.initial = 8});
  LossScaler overflows(at::kCPU, {.initial = 65536});
  fits.scale(loss(w.to(at::kFloat), 1)).backward();
  const auto of_fits = optimizer.accumulate_(fits.value());
  overflows.scale(loss(w.to(at::kFloat), 1)).backward();  // 65536 is beyond FP16
  const auto of_overflows = optimizer.accumulate_(overflows.value());
  EXPECT_EQ(optimizer.step({.lr = 1, .found_inf = optimizer.read_gradients().found_inf}),
            StepOutcome::skipped);
  fits.update(of_fits.found_inf);
  overflows.update(of_overflows.found_inf);
  EXPECT_EQ(value(w), 10);
  EXPECT_EQ(value(fits.value()), 8);
  EXPECT_EQ(value(overflows.value()), 32768);
}

}  // namespace
}  // namespace mantissa::train
