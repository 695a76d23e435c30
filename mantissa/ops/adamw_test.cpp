#include "mantissa/ops/adamw.h"

#include <cmath>
#include <limits>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/ops/simd_target_testing.h"

namespace mantissa::ops {
namespace {

using at::Tensor;

Tensor scalar(double value) { return at::full({}, value, at::kFloat); }

AdamwParameter parameter(const Tensor& master, const Tensor& gradient, const Tensor& model = {},
                         double lr = 1e-2, double weight_decay = 0.1) {
  return {{master, model, gradient, lr, weight_decay},
          at::zeros_like(master),
          at::zeros_like(master),
          at::zeros({}, at::kLong)};
}

AdamwParameter copy(const AdamwParameter& parameter) {
  AdamwParameter result = parameter;
  result.weight.master = parameter.weight.master.clone();
  result.weight.model =
      parameter.weight.model.defined() ? parameter.weight.model.clone() : Tensor();
  result.exp_avg = parameter.exp_avg.values.clone();
  result.exp_avg_sq = parameter.exp_avg_sq.values.clone();
  result.step = parameter.step.clone();
  return result;
}

std::vector<AdamwParameter> copies(const std::vector<AdamwParameter>& parameters) {
  std::vector<AdamwParameter> result;
  result.reserve(parameters.size());
  for (const AdamwParameter& parameter : parameters) {
    result.push_back(copy(parameter));
  }
  return result;
}

void expect_equal(const AdamwParameter& a, const AdamwParameter& b) {
  EXPECT_TRUE(at::equal(a.weight.master, b.weight.master));
  EXPECT_TRUE(!a.weight.model.defined() || at::equal(a.weight.model, b.weight.model));
  EXPECT_TRUE(at::equal(a.exp_avg.values, b.exp_avg.values));
  EXPECT_TRUE(at::equal(a.exp_avg_sq.values, b.exp_avg_sq.values));
  EXPECT_TRUE(at::equal(a.step, b.step));
}

// FP32, BF16 and FP16 parameters and gradients, lengths around the vector, block and chunk sizes,
// dense strides of every kind, gradients of other strides.
std::vector<AdamwParameter> mixed_parameters() {
  std::vector<AdamwParameter> result;
  for (int64_t length : {0, 1, 3, 4, 5, 1023, 1025, 32768, 33001}) {
    for (at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
      const Tensor master = at::randn({length}).to(dtype).to(at::kFloat);
      const Tensor model = dtype == at::kFloat ? Tensor() : master.to(dtype);
      result.push_back(parameter(master, at::randn({length}).to(dtype), model, 0.03, 0.01));
    }
  }
  const Tensor master = at::randn({40, 30}).t();
  result.push_back(parameter(master, at::randn({30, 40}).to(at::kHalf), master.to(at::kHalf)));
  result.push_back(parameter(at::randn({}), at::randn({})));
  const Tensor flat = at::randn({200});  // parts of it are aligned to an element only
  result.push_back(parameter(flat.slice(0, 1, 100), flat.slice(0, 101, 200).to(at::kHalf),
                             flat.to(at::kBFloat16).slice(0, 3, 102)));
  result.push_back(parameter(at::randn({3, 4}), at::randn({4}).expand({3, 4})));
  return result;
}

TEST(Adamw, IsBitForBitTheReferenceOnEveryInstructionSet) {
  for (const WeightDecay decay : {WeightDecay::decoupled, WeightDecay::l2}) {
    at::manual_seed(21);
    const std::vector<AdamwParameter> start = mixed_parameters();
    const std::vector<AdamwParameter> slow = copies(start);
    const GradientUse use = {scalar(8), scalar(0.3), scalar(0)};
    const AdamwOptions options = {.beta1 = 0.8, .beta2 = 0.97, .eps = 1e-6, .decay = decay};
    for (int step = 0; step < 4; ++step) {
      EXPECT_TRUE(adamw_reference_(slow, options, use));
    }
    on_every_simd_target([&] {
      const std::vector<AdamwParameter> fast = copies(start);
      for (int step = 0; step < 4; ++step) {
        EXPECT_TRUE(adamw_(fast, options, use));
      }
      for (size_t i = 0; i < fast.size(); ++i) {
        SCOPED_TRACE(i);
        expect_equal(fast[i], slow[i]);
        EXPECT_EQ(fast[i].step.item<int64_t>(), 4);
      }
    });
  }
}

TEST(Adamw, DoesNotDependOnTheNumberOfThreads) {
  at::manual_seed(22);
  const std::vector<AdamwParameter> one = mixed_parameters();
  const std::vector<AdamwParameter> three = copies(one);
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  adamw_(one, {});
  at::set_num_threads(3);
  adamw_(three, {});
  at::set_num_threads(before);
  for (size_t i = 0; i < one.size(); ++i) {
    SCOPED_TRACE(i);
    expect_equal(one[i], three[i]);
  }
}

struct Fp64State {
  Tensor weight;
  Tensor exp_avg;
  Tensor exp_avg_sq;
};

// The definition of the paper in FP64; also the sizes from which the error bound is made.
void fp64_step(Fp64State& state, const Tensor& gradient, int step, double lr, double decay,
               const AdamwOptions& options) {
  state.exp_avg = state.exp_avg.mul(options.beta1).add(gradient, 1 - options.beta1);
  state.exp_avg_sq = state.exp_avg_sq.mul(options.beta2).add(gradient.square(), 1 - options.beta2);
  const Tensor corrected1 = state.exp_avg.div(1 - std::pow(options.beta1, step));
  const Tensor corrected2 = state.exp_avg_sq.div(1 - std::pow(options.beta2, step));
  const Tensor update = corrected1.div(corrected2.sqrt().add(options.eps)).mul(lr);
  state.weight = state.weight.sub(update).sub(state.weight, lr * decay);
}

// With u = 2^-24 and gradients of one sign, so that no moment cancels: after n steps a moment
// carries at most 4 n + 2 roundings (constants 2, products 2, one addition; those of g^2 one more);
// the square root halves its part. With the division, eps, the bias corrections and step_size a
// decrement carries (6 n + 14) u relative error, and the weight one rounding of itself a step.
TEST(Adamw, IsWithinTheRoundingErrorsOfTheDefinitionInFp64AndLibTorchIsToo) {
  constexpr double kU = 0x1p-24;
  constexpr int kSteps = 12;
  const AdamwOptions options = {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8};
  at::manual_seed(23);
  const Tensor start = at::randn({5000});
  AdamwParameter ours = parameter(start.clone(), {}, {}, 0.01, 0.1);
  Fp64State exact = {start.to(at::kDouble), at::zeros({5000}, at::kDouble),
                     at::zeros({5000}, at::kDouble)};
  std::vector<Tensor> theirs = {start.clone(), at::zeros({5000}), at::zeros({5000}),
                                at::zeros({}, at::kFloat)};
  Tensor bound = at::zeros({5000}, at::kDouble);
  for (int step = 1; step <= kSteps; ++step) {
    const Tensor gradient = at::randn({5000}).abs();
    ours.weight.gradient = gradient;
    adamw_({ours}, options);
    std::vector<Tensor> weights = {theirs[0]};
    std::vector<Tensor> gradients = {gradient.clone()};
    std::vector<Tensor> exp_avgs = {theirs[1]};
    std::vector<Tensor> exp_avg_sqs = {theirs[2]};
    std::vector<Tensor> steps = {theirs[3].add_(1)};
    at::_fused_adamw_(weights, gradients, exp_avgs, exp_avg_sqs, {}, steps, 0.01, options.beta1,
                      options.beta2, 0.1, options.eps, false, false);
    const Tensor before = exact.weight;
    fp64_step(exact, gradient.to(at::kDouble), step, 0.01, 0.1, options);
    const Tensor decrement = before.sub(exact.weight).abs().add(before.abs(), 2 * 0.001);
    bound = bound.add(decrement, (6 * step + 14) * kU).add(exact.weight.abs(), 2 * kU);
  }
  EXPECT_LE(ours.weight.master.sub(exact.weight).abs().div(bound).max().item<double>(), 1);
  EXPECT_LE(theirs[0].sub(exact.weight).abs().div(bound).max().item<double>(), 1);
}

// Kingma and Ba's Adam in FP64 with the penalty in the gradient. Gradients and weights are
// positive, so nothing cancels. g' = g + decay w carries 3 roundings and the error of w so far,
// relative to g': together r. A moment then carries that too (the largest so far), and so does the
// root of the second: 2 r more than the bound above.
TEST(Adamw, WithL2DecayIsWithinTheRoundingErrorsOfAdamInFp64AndLibTorchIsToo) {
  constexpr double kU = 0x1p-24;
  constexpr int kSteps = 12;
  constexpr double kDecay = 0.1;
  constexpr double kLr = 0.01;
  const AdamwOptions options = {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .decay = WeightDecay::l2};
  at::manual_seed(27);
  const Tensor start = at::randn({5000}).abs().add(1);
  AdamwParameter ours = parameter(start.clone(), {}, {}, kLr, kDecay);
  Fp64State exact = {start.to(at::kDouble), at::zeros({5000}, at::kDouble),
                     at::zeros({5000}, at::kDouble)};
  std::vector<Tensor> theirs = {start.clone(), at::zeros({5000}), at::zeros({5000}),
                                at::zeros({}, at::kFloat)};
  Tensor bound = at::zeros({5000}, at::kDouble);
  Tensor relative = at::zeros({5000}, at::kDouble);  // r
  for (int step = 1; step <= kSteps; ++step) {
    const Tensor gradient = at::randn({5000}).abs().add(0.1);
    ours.weight.gradient = gradient;
    adamw_({ours}, options);
    std::vector<Tensor> weights = {theirs[0]};
    std::vector<Tensor> gradients = {gradient.clone()};
    std::vector<Tensor> exp_avgs = {theirs[1]};
    std::vector<Tensor> exp_avg_sqs = {theirs[2]};
    std::vector<Tensor> steps = {theirs[3].add_(1)};
    at::_fused_adam_(weights, gradients, exp_avgs, exp_avg_sqs, {}, steps, kLr, options.beta1,
                     options.beta2, kDecay, options.eps, false, false);
    const Tensor before = exact.weight;
    const Tensor penalized = gradient.to(at::kDouble).add(before, kDecay);
    relative = at::maximum(relative, bound.mul(kDecay).div(penalized).add(3 * kU));
    fp64_step(exact, penalized, step, kLr, 0, options);
    const Tensor decrement = before.sub(exact.weight).abs();
    bound = bound.add(decrement.mul(relative.mul(2).add((6 * step + 14) * kU)))
                .add(exact.weight.abs(), 2 * kU);
  }
  EXPECT_LE(ours.weight.master.sub(exact.weight).abs().div(bound).max().item<double>(), 1);
  EXPECT_LE(theirs[0].sub(exact.weight).abs().div(bound).max().item<double>(), 1);
}

// One step from zero moments: decoupled, a weight of 4 loses lr + lr decay w; as a penalty, the
// decay is in both moments and divides out: it loses lr.
TEST(Adamw, DecayIsDividedByTheRootOnlyWithL2) {
  for (const auto& [decay, expected] :
       {std::pair{WeightDecay::decoupled, 4 - 0.125 - 0.125 * 0.5 * 4},
        std::pair{WeightDecay::l2, 4 - 0.125}}) {
    const AdamwParameter each =
        parameter(at::full({1}, 4, at::kFloat), at::full({1}, 2, at::kFloat), {}, 0.125, 0.5);
    adamw_({each}, {.decay = decay});
    // Ten roundings and eps on a decrement below 1; the weight is rounded once more.
    EXPECT_NEAR(each.weight.master.item<float>(), expected, 10 * 0x1p-24 + 1e-8 + 4 * 0x1p-24);
  }
}

TEST(Adamw, UnscalesAndClipsTheGradient) {
  at::manual_seed(24);
  const Tensor start = at::randn({50});
  const Tensor gradient = at::randn({50});
  const AdamwParameter plain = parameter(start.clone(), gradient.mul(0.25));
  const AdamwParameter scaled = parameter(start.clone(), gradient.mul(1024));
  adamw_({plain}, {});
  adamw_({scaled}, {}, {scalar(1024), scalar(0.25), {}});
  expect_equal(plain, scaled);
}

TEST(Adamw, ASkippedStepLeavesEverythingBitEqual) {
  at::manual_seed(25);
  std::vector<AdamwParameter> parameters = mixed_parameters();
  adamw_(parameters, {});
  const std::vector<AdamwParameter> before = copies(parameters);
  for (AdamwParameter& each : parameters) {
    each.weight.gradient =
        at::full(each.weight.master.sizes(), std::numeric_limits<float>::infinity(), at::kFloat);
  }
  EXPECT_FALSE(adamw_(parameters, {}, {{}, {}, scalar(1)}));
  for (size_t i = 0; i < parameters.size(); ++i) {
    SCOPED_TRACE(i);
    expect_equal(parameters[i], before[i]);
  }
}

// eps = 1e-8 is 0 in FP16: a zero gradient would give 0 / 0 there.
TEST(Adamw, EpsHoldsForFp16Parameters) {
  const Tensor model = at::ones({2}, at::kHalf);
  const AdamwParameter fp16 =
      parameter(at::ones({2}), at::tensor({0.0F, 1e-3F}).to(at::kHalf), model, 1e-3, 0);
  adamw_({fp16}, {});
  EXPECT_EQ(model[0].item<float>(), 1);
  EXPECT_EQ(model[1].item<float>(), at::full({}, 0.999F).to(at::kHalf).item<float>());
  // The update is lr * g / (|g| + eps): within 1e-8 / 1e-3 of lr, and an FP32 rounding of w.
  EXPECT_NEAR(fp16.weight.master[1].item<float>(), 0.999, 1e-3 * 1e-5 + 0x1p-24);
}

TEST(Adamw, TheModelCopyIsTheMasterRoundedOnce) {
  at::manual_seed(26);
  for (at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const Tensor model = at::empty({5000}, dtype);
    const AdamwParameter each = parameter(at::randn({5000}).mul(100), at::randn({5000}), model);
    adamw_({each}, {});
    EXPECT_TRUE(at::equal(model, each.weight.master.to(dtype))) << dtype;
  }
}

TEST(Adamw, NamesWhatDoesNotFit) {
  const auto message = [](const AdamwParameter& bad) -> std::string {
    try {
      adamw_({parameter(at::zeros({2}), at::zeros({2})), bad}, {});
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "";
  };
  const Tensor two = at::zeros({2});
  EXPECT_EQ(message(parameter(two, at::zeros({3}))),
            "adamw_: parameter 1: the gradient has shape [3], the master [2]; pass the gradient of "
            "this parameter");
  EXPECT_EQ(message(parameter(at::zeros({2}, at::kHalf), two)),
            "adamw_: parameter 1: the master is not a dense Float tensor on cpu; pass one");
  EXPECT_EQ(message(parameter(two, two, at::zeros({2}))),
            "adamw_: parameter 1: the model copy is Float of shape [2] and strides [1]; it must be "
            "BFloat16 or Half with the master's shape [2] and strides [1]");
  AdamwParameter bad = parameter(two, two);
  bad.exp_avg_sq = at::zeros({2}, at::kHalf);
  EXPECT_EQ(message(bad),
            "adamw_: parameter 1: exp_avg_sq does not fit the weight; make it with "
            "zero_moment(weight, ...)");
  bad = parameter(two, two);
  bad.step = at::zeros({}, at::kFloat);
  EXPECT_EQ(message(bad), "adamw_: parameter 1: step is not a 0-d Long tensor; pass one");
  EXPECT_EQ(message(parameter(two, Tensor())),
            "adamw_: parameter 1: the gradient is undefined; leave out parameters without a "
            "gradient");
}

}  // namespace
}  // namespace mantissa::ops
