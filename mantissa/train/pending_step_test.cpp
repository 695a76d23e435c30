// A whole step that the host never waits for, composed of the parts of this library: what
// docs/guides/loss-scaling.md shows.
#include <cmath>
#include <vector>

#include <ATen/Context.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "mantissa/amp/autocast.h"
#include "mantissa/amp/loss_scaler.h"
#include "mantissa/amp/policy.h"
#include "mantissa/optim/clip.h"
#include "mantissa/optim/ema.h"
#include "mantissa/optim/optimizer.h"
#include "mantissa/optim/schedule.h"
#include "mantissa/tensor/host_reads_testing.h"
#include "mantissa/tensor/rollback.h"

namespace mantissa::train {
namespace {

using at::Tensor;

constexpr int kSteps = 40;
const optim::Schedule kSchedule = {optim::ScheduleKind::inverse_sqrt, 0.01, 6};

// FP32 and FP16 parameters, and running statistics that each forward pass moves.
struct Net {
  Tensor first = at::randn({8, 4}).requires_grad_();
  Tensor second = at::randn({1, 8}).mul(0.25).to(at::kHalf).requires_grad_();
  Tensor mean = at::zeros({8});
  Tensor var = at::ones({8});
  Tensor batches = at::zeros({}, at::kLong);

  Tensor loss(const Tensor& x) const {
    const amp::Autocast region(policy);
    const Tensor hidden = at::linear(x, first).to(at::kFloat);
    const Tensor normed = at::batch_norm(hidden, {}, {}, mean, var, /*training=*/true,
                                         /*momentum=*/0.1, 1e-5, false);
    const Tensor counter = batches;
    counter.add_(1);
    return at::linear(at::relu(normed).mul(0x1p-6), second).sum();
  }

  amp::Policy policy = amp::find_policy("torch-fixed compute=fp16");
};

enum class Way { fused, read_at_once, pending };

// Every tensor that a loop leaves behind, and its histories.
struct Trained {
  std::vector<Tensor> tensors;
  std::vector<double> scales;
  std::vector<double> rates;
  std::vector<double> norms;
  std::vector<StepOutcome> outcomes;
  size_t host_reads = 0;  // of the loop
};

// The gradient of the last product is the scale itself, in FP16: it overflows at 2^16, to which the
// scale grows from 2^13 by 2 every three steps. All other gradients are smaller.
Trained train(Way way) {
  at::manual_seed(91);
  const Net net;
  optim::Optimizer optimizer({{"first", net.first}, {"second", net.second}},
                             {.beta2 = 0.95, .fused = way == Way::fused});
  optim::Ema ema(optimizer, {.decay = 0.9, .warmup = true});
  amp::LossScaler scaler(at::kCPU, {.initial = 8192, .growth_interval = 3});
  tensor::Rollback buffers({net.mean, net.var, net.batches});
  std::vector<Tensor> scales;
  std::vector<Tensor> rates;
  std::vector<Tensor> norms;
  std::vector<optim::PendingOutcome> outcomes;
  Trained result;
  {
    const tensor::HostReads reads;
    for (int step = 0; step < kSteps; ++step) {
      buffers.remember();
      scaler.scale(net.loss(at::randn({6, 4}))).backward();
      const optim::GradientReport report = optimizer.read_gradients(scaler.value());
      const Tensor rate =
          way == Way::pending
              ? optim::lr_at(kSchedule, optimizer.applied_steps())
              : at::full({}, optim::lr_at(kSchedule, optimizer.steps()), at::kDouble);
      scales.push_back(scaler.value().clone());
      rates.push_back(rate);
      norms.push_back(report.norm);
      outcomes.push_back(optimizer.enqueue_step({.lr = rate,
                                                 .scale = scaler.value(),
                                                 .clip_factor = optim::clip_factor(report.norm, 1),
                                                 .found_inf = report.found_inf}));
      scaler.update(report.found_inf);
      if (way == Way::pending) {
        ema.update(optimizer, outcomes.back());
        buffers.undo_if(report.found_inf);
      } else if (outcomes.back().read() == StepOutcome::applied) {
        ema.update(optimizer, StepOutcome::applied);
      } else {
        buffers.undo_if(at::ones({}));
      }
      optimizer.zero_grad();
    }
    result.host_reads = tensor::HostReads::names().size();
  }
  for (size_t i = 0; i < kSteps; ++i) {
    result.scales.push_back(scales[i].item<double>());
    result.rates.push_back(rates[i].item<double>());
    result.norms.push_back(norms[i].item<double>());
    result.outcomes.push_back(outcomes[i].read());
  }
  result.tensors = {net.first.detach(),
                    net.second.detach(),
                    net.mean,
                    net.var,
                    net.batches,
                    ema.shadow("first"),
                    ema.shadow("second"),
                    scaler.value(),
                    scaler.skipped(),
                    at::full({}, ema.updates()),
                    at::full({}, optimizer.steps())};
  const tensor::StateDict state = optimizer.state_dict();
  for (const auto& [name, tensor] : state.tensors()) {
    result.tensors.push_back(tensor);
  }
  return result;
}

// A norm that overflowed is NaN or infinite, and equals neither.
std::vector<double> finite_ones(std::vector<double> values) {
  for (double& value : values) {
    value = std::isfinite(value) ? value : -1;
  }
  return values;
}

void expect_same(const Trained& a, const Trained& b) {
  EXPECT_EQ(a.scales, b.scales);
  ASSERT_EQ(a.rates.size(), b.rates.size());
  for (size_t i = 0; i < a.rates.size(); ++i) {
    EXPECT_NEAR(a.rates[i], b.rates[i], b.rates[i] * 0x1p-50)
        << i;  // the error of a root: Schedule.*
  }
  EXPECT_EQ(finite_ones(a.norms), finite_ones(b.norms));
  EXPECT_EQ(a.outcomes, b.outcomes);
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    EXPECT_TRUE(at::equal(a.tensors[i], b.tensors[i])) << i;
  }
}

TEST(PendingStep, NothingIsReadAndAllFollowsTheOutcome) {
  const Trained pending = train(Way::pending);
  EXPECT_EQ(pending.host_reads, 0U);
  int64_t applied = 0;
  for (size_t i = 0; i < kSteps; ++i) {
    EXPECT_EQ(pending.outcomes[i],
              pending.scales[i] < 65536 ? StepOutcome::applied : StepOutcome::skipped);
    const double rate = optim::lr_at(kSchedule, applied);
    EXPECT_NEAR(pending.rates[i], rate, rate * 0x1p-50) << i;
    applied += pending.outcomes[i] == StepOutcome::applied ? 1 : 0;
  }
  // 2^13 to 2^15 last three steps each; then one of four is at 2^16.
  EXPECT_EQ(applied, kSteps - 8);
  EXPECT_EQ(pending.tensors[4].item<int64_t>(), applied) << "batches";
  EXPECT_EQ(pending.tensors[8].item<int64_t>(), 8) << "skipped";
  EXPECT_EQ(pending.tensors[9].item<int64_t>(), applied) << "updates of the average";
  EXPECT_EQ(pending.tensors[10].item<int64_t>(), applied) << "steps";
}

// The two sum the squares of the gradients in FP64 in other orders, which FP32 rounds away, and
// take bias corrections from pow and expm1, of which that is shown.
TEST(PendingStep, TrainsBitForBitAsALoopThatWaitsAndAsTheFusedOne) {
  double step = 0;
  for (int64_t n = 0; n < kSteps; ++n) {
    step += 1;
    const double lr = optim::lr_at(kSchedule, n);
    for (const double constant :
         {lr, lr * optim::OptimizerOptions().weight_decay, lr / (1 - std::pow(0.9, step)),
          1 / std::sqrt(1 - std::pow(0.95, step))}) {
      EXPECT_EQ(static_cast<float>(constant * (1 - 0x1p-40)),
                static_cast<float>(constant * (1 + 0x1p-40)));
    }
  }
  const Trained pending = train(Way::pending);
  const Trained waiting = train(Way::read_at_once);
  EXPECT_GE(waiting.host_reads, static_cast<size_t>(kSteps));
  expect_same(pending, waiting);
  expect_same(pending, train(Way::fused));
}

}  // namespace
}  // namespace mantissa::train
