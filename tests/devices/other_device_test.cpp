// Whole training steps on a device for which the library has no kernel, and which needs none to be
// there. See mantissa/tensor/other_device_testing.h.
#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "mantissa/amp/autocast.h"
#include "mantissa/amp/loss_scaler.h"
#include "mantissa/amp/parameter_formats.h"
#include "mantissa/amp/policy.h"
#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/models/transformer.h"
#include "mantissa/ops/cuda/kernels_on_host.h"
#include "mantissa/ops/device_kernels.h"
#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/optim/clip.h"
#include "mantissa/optim/ema.h"
#include "mantissa/optim/optimizer.h"
#include "mantissa/optim/schedule.h"
#include "mantissa/tensor/other_device_testing.h"

namespace mantissa {
namespace {

using at::Tensor;
using tensor::other_device::Calls;
using tensor::other_device::kDevice;

constexpr int kSteps = 3;
constexpr int64_t kVocabulary = 11;
const models::TransformerOptions kModel = {
    .vocabulary = kVocabulary, .layers = 2, .width = 16, .heads = 2};
const optim::Schedule kSchedule = {optim::ScheduleKind::inverse_sqrt, 0.01, 6};

// All that steps leave behind, on the CPU.
struct Trained {
  std::vector<Tensor> gradients;  // of the first step, unscaled
  std::vector<Tensor> weights;    // FP32 masters
  std::vector<Tensor> parameters;
  std::vector<at::ScalarType> dtypes;
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<StepOutcome> outcomes;
  double scale = 0;
  int64_t steps = 0;
  std::vector<std::string> waits;  // of the steps, not of what was read after them
};

// The step of optim/optimizer.h, which waits for nothing.
Trained train(at::Device device, const std::string& policy_text, float scale) {
  at::manual_seed(3);
  const amp::Policy policy = amp::find_policy(policy_text);
  const models::Transformer model(kModel, 5, device);
  const amp::ParameterFormats formats(policy, model.parameters());
  formats.cast_parameters_();
  optim::Optimizer optimizer(model.parameters(), {.beta2 = 0.95});
  optim::Ema ema(optimizer, {.decay = 0.9});
  amp::LossScaler scaler(device, {.initial = scale, .growth_interval = 2});
  std::vector<Tensor> tokens;
  tokens.reserve(kSteps);
  for (int step = 0; step < kSteps; ++step) {
    tokens.push_back(at::randint(kVocabulary, {3, 9}, at::kLong).to(device));
  }
  // Tables of positions are sent to the device when they are first needed.
  {
    const at::NoGradGuard no_grad;
    const amp::Autocast region(policy, formats);
    (void)model.loss(tokens[0].narrow(1, 0, 8), tokens[0].narrow(1, 1, 8));
  }
  std::vector<Tensor> losses;
  std::vector<Tensor> norms;
  std::vector<optim::PendingOutcome> outcomes;
  Trained result;
  Calls::instance().reset();
  for (int step = 0; step < kSteps; ++step) {
    Tensor loss;
    {
      const amp::Autocast region(policy, formats);
      loss = model.loss(tokens[step].narrow(1, 0, 8), tokens[step].narrow(1, 1, 8));
    }
    losses.push_back(loss.detach());
    scaler.scale(loss).backward();
    if (step == 0) {
      for (const tensor::Parameter& parameter : model.parameters()) {
        result.gradients.push_back(parameter.value.grad().clone());
      }
    }
    const optim::GradientReport report = optimizer.read_gradients(scaler.value());
    norms.push_back(report.norm);
    outcomes.push_back(
        optimizer.enqueue_step({.lr = optim::lr_at(kSchedule, optimizer.applied_steps()),
                                .scale = scaler.value(),
                                .clip_factor = optim::clip_factor(report.norm, 0.5),
                                .found_inf = report.found_inf}));
    ema.update(optimizer, outcomes.back());
    scaler.update(report.found_inf);
    optimizer.zero_grad();
  }
  result.waits = Calls::instance().waits;
  for (Tensor& gradient : result.gradients) {
    gradient = gradient.cpu().to(at::kDouble).div(scale);
  }
  for (const tensor::Parameter& parameter : model.parameters()) {
    result.weights.push_back(optimizer.master(parameter.name).detach().cpu().clone());
    result.parameters.push_back(parameter.value.detach().cpu());
    result.dtypes.push_back(parameter.value.scalar_type());
  }
  for (int step = 0; step < kSteps; ++step) {
    result.losses.push_back(losses[step].item<double>());
    result.norms.push_back(norms[step].item<double>());
    result.outcomes.push_back(outcomes[step].read());
  }
  result.scale = scaler.value().item<double>();
  result.steps = optimizer.steps();
  return result;
}

double distance(const Tensor& a, const Tensor& b) {
  const Tensor wide = b.to(at::kDouble);
  return a.to(at::kDouble).sub(wide).norm().item<double>() /
         std::max(wide.norm().item<double>(), 1e-300);
}

// Roundings to the compute format on the longest path from a weight to its gradient: in each of
// the two blocks two norms, four products, three of the rotation, attention, GELU, forward and
// backward, and the head. In the mean over a tensor they add up like the sides of right angles or
// better, at most one after the other.
constexpr double kRoundings = 2 * 2 * 11 + 4;

class OtherDevice : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    tensor::other_device::register_other_device();
    ops::install_cpu_kernels();  // for operations of the CPU alone
  }
};

TEST_F(OtherDevice, IsNotTheHost) {
  const Tensor x = at::randint(5, {3}, at::kLong).to(kDevice);
  Calls::instance().reset();
  EXPECT_DEATH((void)*static_cast<const volatile int64_t*>(x.const_data_ptr<int64_t>()), "");
  (void)x[0].item<int64_t>();
  EXPECT_EQ(Calls::instance().waits, std::vector<std::string>{"_local_scalar_dense"});
}

// FP32: what differs from the CPU is the order of sums, and fused operations keep more bits.
TEST_F(OtherDevice, TrainsInFp32AsTheCpuDoes) {
  const Trained cpu = train(at::kCPU, "fp32", 1);
  const Trained other = train(kDevice, "fp32", 1);
  for (size_t i = 0; i < cpu.gradients.size(); ++i) {
    EXPECT_LT(distance(other.gradients[i], cpu.gradients[i]), kRoundings * 0x1p-24) << i;
  }
  for (int step = 0; step < kSteps; ++step) {
    // The first steps of AdamW are signs: a gradient that is almost 0 may go either way.
    EXPECT_NEAR(other.losses[step], cpu.losses[step], step == 0 ? kRoundings * 0x1p-24 : 1e-4)
        << step;
  }
}

TEST_F(OtherDevice, TrainsInBf16WithMastersAndALossScale) {
  const Trained cpu = train(at::kCPU, "torch-fixed compute=bf16 param=bf16", 1024);
  const Trained other = train(kDevice, "torch-fixed compute=bf16 param=bf16", 1024);
  EXPECT_EQ(other.outcomes, std::vector<StepOutcome>(kSteps, StepOutcome::applied));
  EXPECT_EQ(other.steps, kSteps);
  EXPECT_EQ(other.scale, 2048) << "grew after two steps";
  EXPECT_EQ(other.dtypes, std::vector<at::ScalarType>(other.dtypes.size(), at::kBFloat16));
  for (size_t i = 0; i < cpu.gradients.size(); ++i) {
    EXPECT_LT(distance(other.gradients[i], cpu.gradients[i]), kRoundings * 0x1p-9) << i;
    EXPECT_TRUE(at::equal(other.weights[i].to(at::kBFloat16), other.parameters[i])) << i;
  }
  for (int step = 0; step < kSteps; ++step) {
    EXPECT_NEAR(other.losses[step], cpu.losses[step], kRoundings * 0x1p-9) << step;
    EXPECT_NEAR(other.norms[step], cpu.norms[step], cpu.norms[step] * kRoundings * 0x1p-9) << step;
  }
}

TEST_F(OtherDevice, NoStepWaitsForTheDevice) {
  const Trained other = train(kDevice, "torch-fixed compute=bf16 param=bf16", 1024);
  EXPECT_EQ(other.waits, std::vector<std::string>());
  EXPECT_TRUE(Calls::instance().seen.count("aten::mm") != 0) << "so the steps were seen";
}

TEST_F(OtherDevice, SkipsAStepThatOverflowsWhole) {
  const Trained other = train(kDevice, "torch-fixed compute=fp16", 0x1p120F);
  EXPECT_EQ(other.outcomes, std::vector<StepOutcome>(kSteps, StepOutcome::skipped));
  EXPECT_EQ(other.steps, 0);
  EXPECT_EQ(other.scale, 0x1p117);
  const models::Transformer fresh(kModel, 5);
  for (size_t i = 0; i < other.weights.size(); ++i) {
    EXPECT_TRUE(at::equal(other.weights[i], fresh.parameters()[i].value)) << i;
  }
}

// The same with the kernels of mantissa/ops/cuda, which the host runs.
class OtherDeviceWithKernels : public OtherDevice {
 protected:
  void SetUp() override { ops::install_kernels_on_other_device(); }
  void TearDown() override { ops::register_device_kernels(at::kPrivateUse1, nullptr); }
};

TEST_F(OtherDeviceWithKernels, TrainsInBf16WithMastersAndALossScale) {
  const std::string policy = "torch-fixed compute=bf16 param=bf16";
  const Trained cpu = train(at::kCPU, policy, 1024);
  const Trained other = train(kDevice, policy, 1024);
  EXPECT_EQ(other.waits, std::vector<std::string>());
  EXPECT_EQ(other.outcomes, std::vector<StepOutcome>(kSteps, StepOutcome::applied));
  EXPECT_EQ(other.scale, 2048);
  for (size_t i = 0; i < cpu.gradients.size(); ++i) {
    EXPECT_LT(distance(other.gradients[i], cpu.gradients[i]), kRoundings * 0x1p-9) << i;
    EXPECT_TRUE(at::equal(other.weights[i].to(at::kBFloat16), other.parameters[i])) << i;
  }
  for (int step = 0; step < kSteps; ++step) {
    EXPECT_NEAR(other.losses[step], cpu.losses[step], kRoundings * 0x1p-9) << step;
  }
}

// Gradients are given, and the second of them is not finite.
std::vector<Tensor> states_after_steps(at::Device device, const optim::OptimizerOptions& options) {
  at::manual_seed(19);
  tensor::ParameterList parameters;
  for (const int64_t size : {1, 37, 5000}) {
    parameters.push_back({"w" + std::to_string(size),
                          at::randn({size}).to(at::kBFloat16).to(device).requires_grad_()});
  }
  optim::Optimizer optimizer(parameters, options);
  const Tensor scale = at::full({}, 8.0F).to(device);
  std::vector<optim::PendingOutcome> outcomes;
  for (int step = 0; step < 4; ++step) {
    for (const tensor::Parameter& parameter : parameters) {
      Tensor gradient = at::randn(parameter.value.sizes()).to(at::kBFloat16);
      if (step == 1) {
        gradient[0] = HUGE_VAL;
      }
      parameter.value.mutable_grad() = gradient.to(device);
    }
    const optim::GradientReport report = optimizer.read_gradients(scale);
    outcomes.push_back(optimizer.enqueue_step({.lr = 0.01,
                                               .scale = scale,
                                               .found_inf = report.found_inf,
                                               .outcome = optim::OutcomeTransfer::on_demand}));
  }
  for (size_t step = 0; step < outcomes.size(); ++step) {
    EXPECT_EQ(outcomes[step].read(), step == 1 ? StepOutcome::skipped : StepOutcome::applied);
  }
  std::vector<Tensor> result;
  for (const tensor::Parameter& parameter : parameters) {
    result.push_back(parameter.value.detach().cpu());
  }
  const tensor::StateDict state = optimizer.state_dict();
  for (const auto& [name, tensor] : state.tensors()) {
    result.push_back(tensor.cpu());
  }
  return result;
}

// Also random numbers: their streams are counted by the device, and by the host for the CPU.
TEST_F(OtherDeviceWithKernels, StepsAreBitForBitThoseOfTheCpu) {
  using optim::Masters;
  for (const optim::Kind kind : {optim::Kind::adamw, optim::Kind::adam, optim::Kind::sgd}) {
    for (const Masters masters : {Masters::fp32, Masters::split, Masters::compensated,
                                  Masters::stochastic, Masters::none}) {
      for (const ops::MomentFormat moments : {ops::MomentFormat::fp32, ops::MomentFormat::bf16}) {
        SCOPED_TRACE(concat(to_string(kind), " ", to_string(masters), " ", to_string(moments)));
        const optim::OptimizerOptions options = {
            .kind = kind, .masters = masters, .moments = moments, .seed = 5};
        const std::vector<Tensor> cpu = states_after_steps(at::kCPU, options);
        const std::vector<Tensor> other = states_after_steps(kDevice, options);
        ASSERT_EQ(cpu.size(), other.size());
        for (size_t i = 0; i < cpu.size(); ++i) {
          EXPECT_TRUE(at::equal(cpu[i], other[i])) << i;
        }
      }
    }
  }
}

TEST_F(OtherDeviceWithKernels, WhatNoKernelDoesIsRefused) {
  const tensor::ParameterList parameters = {{"w", at::ones({3}).to(kDevice).requires_grad_()}};
  EXPECT_EQ(message_of<Unsupported>([&] {
              const optim::Optimizer optimizer(parameters,
                                               {.moments = ops::MomentFormat::blockwise8});
            }),
            "optimizer: moments is blockwise8, which only the fused passes do; use fp32 or "
            "bf16");
}

}  // namespace
}  // namespace mantissa
