// The fast path - LibTorch's operations under amp::Autocast, our CPU kernels, the loss scaler and
// the optimizer - against the reference, from the reference's weights at every step: both lie in
// the derived enclosure of that step, and the updates are equal to the bit.

#include <cstring>
#include <string>
#include <string_view>

#include <ATen/Parallel.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "curve.h"
#include "enclosure.h"
#include "mantissa/amp/autocast.h"
#include "mantissa/amp/loss_scaler.h"
#include "mantissa/base/error.h"
#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/ops/tf32.h"
#include "mantissa/optim/optimizer.h"
#include "phix174.h"
#include "reference_model.h"

namespace mantissa::golden {
namespace {

using numerics::Format;

at::Tensor tensor_of(const Matrix& matrix) {
  return at::tensor(matrix.values).view({matrix.rows, matrix.columns});
}

bool same_bits(const at::Tensor& tensor, const Matrix& matrix) {
  return tensor.is_contiguous() && tensor.scalar_type() == at::kFloat &&
         tensor.numel() == static_cast<int64_t>(matrix.values.size()) &&
         std::memcmp(tensor.const_data_ptr(), matrix.values.data(), tensor.nbytes()) == 0;
}

void expect_within(float value, const Interval& interval, const std::string& name) {
  EXPECT_TRUE(interval.contains(value))
      << name << " is " << value << ", not in " << interval.low << " .. " << interval.high;
}

void expect_within(const at::Tensor& gradient, const IntervalMatrix& enclosure,
                   const std::string& name) {
  ASSERT_EQ(gradient.scalar_type(), at::kFloat);
  const at::Tensor dense = gradient.contiguous();
  ASSERT_EQ(dense.numel(), static_cast<int64_t>(enclosure.values.size()));
  for (size_t i = 0; i < enclosure.values.size(); ++i) {
    expect_within(dense.const_data_ptr<float>()[i], enclosure.values[i], concat(name, " ", i));
  }
}

amp::LossScalerOptions scaler_options(Format compute) {
  if (compute != Format::fp16) {
    return {.kind = amp::ScaleKind::none};
  }
  return {.kind = amp::ScaleKind::dynamic,
          .initial = kInitialScale,
          .growth = kScaleGrowth,
          .backoff = kScaleBackoff,
          .growth_interval = kScaleGrowthInterval};
}

// Without this rule cross_entropy_loss asks for 16-bit log-probabilities.
constexpr std::string_view kFp32Loss = " cross_entropy_loss=fp32";

class FastTraining {
 public:
  FastTraining(Format compute, const Weights& initial, std::string_view rules = kFp32Loss)
      : compute_(compute),
        policy_(amp::parse_policy(concat("torch compute=", to_string(compute), rules))),
        hidden_(tensor_of(initial.hidden).requires_grad_()),
        output_(tensor_of(initial.output).requires_grad_()),
        scaler_(at::kCPU, scaler_options(compute)),
        optimizer_({{"hidden.weight", hidden_}, {"output.weight", output_}},
                   {.kind = optim::Kind::adamw,
                    .beta1 = kBeta1,
                    .beta2 = kBeta2,
                    .eps = kEps,
                    .weight_decay = kWeightDecay}) {}

  void expect_weights(const Weights& weights) const {
    EXPECT_TRUE(same_bits(hidden_, weights.hidden));
    EXPECT_TRUE(same_bits(output_, weights.output));
  }

  float scale() const { return scaler_.value().item<float>(); }

  // Leaves its gradients in the weights.
  float loss(const Batch& batch) {
    const ops::Tf32Guard tf32(compute_ == Format::tf32 ? ops::Tf32::on : ops::Tf32::off);
    at::Tensor loss;
    {
      const amp::Autocast region(policy_);
      const at::Tensor hidden = at::relu(at::linear(tensor_of(batch.inputs), hidden_));
      loss = at::cross_entropy_loss(at::linear(hidden, output_), at::tensor(batch.targets));
    }
    scaler_.scale(loss).backward();
    return loss.item<float>();
  }

  bool found_inf() {
    return optimizer_.read_gradients(scaler_.value()).found_inf.item<float>() != 0;
  }

  void expect_gradients(const Enclosure& enclosure) const {
    expect_within(hidden_.grad(), enclosure.hidden_gradient, "hidden gradient");
    expect_within(output_.grad(), enclosure.output_gradient, "output gradient");
  }

  // From these gradients instead of its own: errors do not add up over steps.
  optim::StepOutcome update(const Weights& gradients) {
    hidden_.mutable_grad() = tensor_of(gradients.hidden);
    output_.mutable_grad() = tensor_of(gradients.output);
    const optim::GradientReport report = optimizer_.read_gradients(scaler_.value());
    const optim::StepOutcome outcome =
        optimizer_.step({.lr = kLr, .scale = scaler_.value(), .found_inf = report.found_inf});
    scaler_.update(report.found_inf);
    optimizer_.zero_grad();
    return outcome;
  }

 private:
  Format compute_;
  amp::Policy policy_;
  at::Tensor hidden_;
  at::Tensor output_;
  amp::LossScaler scaler_;
  optim::Optimizer optimizer_;
};

class Golden : public ::testing::TestWithParam<Format> {
 protected:
  static void SetUpTestSuite() { ops::install_cpu_kernels(); }
  void SetUp() override { at::set_num_threads(1); }  // nothing here is large enough to share
  void TearDown() override { at::set_num_threads(threads_); }

 private:
  int threads_ = at::get_num_threads();
  // Also where LibTorch has native 16-bit products: those are not ours to promise.
  ops::CpuKernelsGuard kernels_{ops::CpuKernels::ours};
};

TEST_P(Golden, FastPathAgreesStepByStepWithinTheDerivedBound) {
  ReferenceTraining reference(GetParam(), phix174());
  Step step = reference.step();
  FastTraining fast(GetParam(), step.before);
  for (int64_t i = 0; i < kCurveSteps && !HasFailure(); ++i) {
    SCOPED_TRACE(concat("step ", step.number));
    EXPECT_EQ(fast.scale(), step.scale);
    const Enclosure enclosure = enclose(GetParam(), step.before, step.batch, step.scale);
    expect_within(fast.loss(step.batch), enclosure.loss, "loss");
    expect_within(step.loss, enclosure.loss, "the reference's loss");
    EXPECT_EQ(enclosure.overflow, step.applied ? Overflow::none : Overflow::certain);
    EXPECT_EQ(fast.found_inf(), !step.applied);
    if (step.applied) {
      fast.expect_gradients(enclosure);
      expect_within(tensor_of(step.gradients.hidden), enclosure.hidden_gradient,
                    "the reference's hidden gradient");
      expect_within(tensor_of(step.gradients.output), enclosure.output_gradient,
                    "the reference's output gradient");
    }
    EXPECT_EQ(fast.update(step.gradients),
              step.applied ? optim::StepOutcome::applied : optim::StepOutcome::skipped);
    fast.expect_weights(step.after);
    step = reference.step();
  }
}

// LibTorch 2.13 then rounds the sum of exponentials, its logarithm and the log-probabilities each
// to 16 bits: the reason for kFp32Loss.
TEST_P(Golden, TheLossOfPlainTorchRulesIsCoarserWhereLogitsHave16Bits) {
  ReferenceTraining reference(GetParam(), phix174());
  const Step step = reference.step();
  FastTraining fast(GetParam(), step.before, "");
  const Enclosure enclosure = enclose(GetParam(), step.before, step.batch, step.scale);
  const bool coarser = numerics::info(GetParam()).storage_bits == 16;
  EXPECT_EQ(enclosure.loss.contains(fast.loss(step.batch)), !coarser);
}

INSTANTIATE_TEST_SUITE_P(Formats, Golden, ::testing::ValuesIn(kCurveFormats),
                         [](const auto& test) { return std::string(to_string(test.param)); });

}  // namespace
}  // namespace mantissa::golden
