#include "mantissa/ops/moment.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/numerics/rounding.h"
#include "mantissa/ops/adamw.h"
#include "mantissa/ops/moment_storage.h"
#include "mantissa/ops/sgd.h"
#include "mantissa/ops/simd_target_testing.h"

namespace mantissa::ops {
namespace {

using at::Tensor;
using ::testing::HasSubstr;

constexpr std::array kFormats = {MomentFormat::fp32, MomentFormat::bf16, MomentFormat::blockwise8};
constexpr std::array kNarrow = {MomentFormat::bf16, MomentFormat::blockwise8};

AdamwParameter parameter(const Tensor& weight, MomentFormat format) {
  AdamwParameter result;
  if (weight.scalar_type() == at::kFloat) {
    result.weight.master = weight.clone();
  } else {
    result.weight.model = weight.clone();
    result.weight.rest =
        at::zeros(weight.sizes(), at::kShort).as_strided(weight.sizes(), weight.strides());
  }
  result.weight.lr = 1e-2;
  result.weight.weight_decay = 0.1;
  result.exp_avg = zero_moment(weight, format, CodeMap::with_sign);
  result.exp_avg_sq = zero_moment(weight, format, CodeMap::nonnegative);
  result.exp_avg.seed = result.exp_avg_sq.seed = 9;
  result.step = at::zeros({}, at::kLong);
  return result;
}

// A stream for each moment and step.
void set_streams(AdamwParameter& parameter, uint64_t step) {
  parameter.exp_avg.stream = 2 * step;
  parameter.exp_avg_sq.stream = 2 * step + 1;
}

void expect_equal(const Moment& a, const Moment& b) {
  EXPECT_TRUE(at::equal(a.values, b.values));
  EXPECT_TRUE(!a.scales.defined() || at::equal(a.scales, b.scales));
}

Tensor fp32_of(const Moment& moment, CodeMap map) {
  const std::vector<float> values = moments_reference(moment, map);
  Tensor result = at::empty({static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), result.mutable_data_ptr<float>());
  return result;
}

std::vector<Tensor> weights() {
  std::vector<Tensor> result;
  for (const int64_t length : {0, 1, 255, 257, 1025, 33001}) {
    result.push_back(at::randn({length}));
  }
  result.push_back(at::randn({40, 30}).t().to(at::kBFloat16));
  result.push_back(at::randn({5000}).to(at::kBFloat16));
  return result;
}

TEST(Moment, EveryFormatIsWhatTheReferenceMakesOfItOnEveryInstructionSet) {
  on_every_simd_target([] {
    for (const MomentFormat format : kFormats) {
      at::manual_seed(41);
      for (const Tensor& weight : weights()) {
        SCOPED_TRACE(::testing::Message() << static_cast<int>(format) << " " << weight.sizes());
        AdamwParameter fast = parameter(weight, format);
        AdamwParameter slow = parameter(weight, format);
        SgdParameter fast_sgd = {fast.weight, zero_moment(weight, format, CodeMap::with_sign)};
        fast_sgd.weight.master = fast.weight.master.defined() ? weight.clone() : Tensor();
        fast_sgd.weight.model = fast.weight.model.defined() ? weight.clone() : Tensor();
        fast_sgd.weight.rest = fast.weight.rest.defined() ? fast.weight.rest.clone() : Tensor();
        SgdParameter slow_sgd = fast_sgd;
        slow_sgd.momentum = zero_moment(weight, format, CodeMap::with_sign);
        for (Tensor* tensor :
             {&slow_sgd.weight.master, &slow_sgd.weight.model, &slow_sgd.weight.rest}) {
          *tensor = tensor->defined() ? tensor->clone() : Tensor();
        }
        for (uint64_t step = 0; step < 3; ++step) {
          set_streams(fast, step);
          set_streams(slow, step);
          fast_sgd.momentum.stream = slow_sgd.momentum.stream = step;
          const Tensor gradient = at::randn(weight.sizes()).mul(at::randn(weight.sizes()).exp());
          fast.weight.gradient = slow.weight.gradient = gradient;
          fast_sgd.weight.gradient = slow_sgd.weight.gradient = gradient;
          adamw_({fast}, {});
          adamw_reference_({slow}, {});
          sgd_({fast_sgd}, {});
          sgd_reference_({slow_sgd}, {});
        }
        EXPECT_TRUE(at::equal(weights_of(fast.weight), weights_of(slow.weight)));
        EXPECT_TRUE(at::equal(weights_of(fast_sgd.weight), weights_of(slow_sgd.weight)));
        expect_equal(fast.exp_avg, slow.exp_avg);
        expect_equal(fast.exp_avg_sq, slow.exp_avg_sq);
        expect_equal(fast_sgd.momentum, slow_sgd.momentum);
      }
    }
  });
}

TEST(Moment, DoesNotDependOnTheNumberOfThreads) {
  const int before = at::get_num_threads();
  for (const MomentFormat format : kNarrow) {
    at::manual_seed(42);
    const Tensor weight = at::randn({100000});
    AdamwParameter one = parameter(weight, format);
    AdamwParameter three = parameter(weight, format);
    one.weight.gradient = three.weight.gradient = at::randn({100000});
    at::set_num_threads(1);
    adamw_({one}, {});
    at::set_num_threads(3);
    adamw_({three}, {});
    expect_equal(one.exp_avg, three.exp_avg);
    expect_equal(one.exp_avg_sq, three.exp_avg_sq);
  }
  at::set_num_threads(before);
}

TEST(Moment, ASkippedStepLeavesItBitEqual) {
  for (const MomentFormat format : kFormats) {
    at::manual_seed(43);
    AdamwParameter each = parameter(at::randn({700}), format);
    each.weight.gradient = at::randn({700});
    adamw_({each}, {});
    const std::vector<Tensor> before = {
        each.exp_avg.values.clone(), each.exp_avg_sq.values.clone(),
        each.exp_avg.scales.defined() ? each.exp_avg.scales.clone() : Tensor()};
    each.weight.gradient = at::full({700}, std::numeric_limits<float>::infinity(), at::kFloat);
    EXPECT_FALSE(adamw_({each}, {}, {{}, {}, at::ones({})}));
    EXPECT_TRUE(at::equal(each.exp_avg.values, before[0]));
    EXPECT_TRUE(at::equal(each.exp_avg_sq.values, before[1]));
    EXPECT_TRUE(!before[2].defined() || at::equal(each.exp_avg.scales, before[2]));
  }
}

// Zero gradients, a thousand steps: v = 0.999^1000. The nearest BF16 number to 0.999 * 1 is 1, so
// that it would stay. The mean of stochastic rounding is exact and a step has a variance of at most
// (2^-8)^2 / 4 below 1: five standard errors of 4096 elements, and 1000 roundings of beta2 in FP32.
TEST(Moment, ASecondMomentInBf16DecaysAndToNearestItWouldNot) {
  constexpr int64_t kElements = 4096;
  EXPECT_EQ(numerics::round_to(numerics::Format::bf16, 0.999F), 1);
  AdamwParameter each = parameter(at::zeros({kElements}), MomentFormat::bf16);
  each.exp_avg_sq.values.fill_(1);
  each.weight.gradient = at::zeros({kElements});
  for (uint64_t step = 0; step < 1000; ++step) {
    set_streams(each, step);
    adamw_({each}, {.beta2 = 0.999});
  }
  const double mean = each.exp_avg_sq.values.to(at::kDouble).mean().item<double>();
  EXPECT_NEAR(mean, std::pow(0.999, 1000),
              5 * 0x1p-8 / 2 * std::sqrt(1000.0 / kElements) + 1000 * 0x1p-24);
}

// The scales of blocks carry a decay that all elements have in common, exactly.
TEST(Moment, ASecondMomentInBlocksDecaysWithItsBlock) {
  AdamwParameter each = parameter(at::zeros({300}), MomentFormat::blockwise8);
  each.exp_avg_sq.values.fill_(255);
  each.exp_avg_sq.values[7] = 100;
  each.exp_avg_sq.scales.fill_(1);
  each.weight.gradient = at::zeros({300});
  float expected = 1;
  for (int step = 0; step < 1000; ++step) {
    adamw_({each}, {.beta2 = 0.999});
    expected *= 0.999F;
  }
  EXPECT_EQ(each.exp_avg_sq.scales[0].item<float>(), expected);
  EXPECT_EQ(each.exp_avg_sq.values[7].item<uint8_t>(), 100);
}

// Two elements of one block, the second at 0.1035 of the first and then with squares of 20 times
// that: with beta2 = 0.999 each step is rounded away, with 0.9 it arrives.
TEST(Moment, ASlowChangeWithinABlockIsRoundedAwayAndAQuickOneArrives) {
  const float start = numbers_of(CodeMap::nonnegative)[127];
  ASSERT_NEAR(start, 0.1035, 1e-4);
  for (const auto& [beta2, arrives] : {std::pair{0.999, false}, std::pair{0.9, true}}) {
    AdamwParameter each = parameter(at::zeros({2}), MomentFormat::blockwise8);
    each.exp_avg_sq.values[0] = 255;
    each.exp_avg_sq.values[1] = 127;
    each.exp_avg_sq.scales.fill_(1);
    Tensor gradient = at::ones({2});
    gradient[1] = std::sqrt(20 * start);
    each.weight.gradient = gradient;
    for (int step = 0; step < 30; ++step) {
      adamw_({each}, {.beta2 = beta2});
    }
    const float second = fp32_of(each.exp_avg_sq, CodeMap::nonnegative)[1].item<float>();
    EXPECT_EQ(second > 1.5F * start, arrives) << beta2 << " " << second;
  }
}

// A second moment that is below the map beside its block, and a first one that is not. With a code
// of 0 the second step would be lr / (1 - 0.9^2) * 0.9 * 10^-5 / eps, nearly 50.
TEST(Moment, AStepStaysBoundedWhenTheSecondMomentIsBelowTheMap) {
  AdamwParameter each = parameter(at::zeros({2}), MomentFormat::blockwise8);
  each.weight.weight_decay = 0;
  Tensor gradient = at::ones({2});
  gradient[1] = 1e-4F;  // its square is 1e-8 of the other
  each.weight.gradient = gradient;
  adamw_({each}, {});
  const Tensor second = fp32_of(each.exp_avg_sq, CodeMap::nonnegative);
  EXPECT_FLOAT_EQ(second[1].item<float>(), 0.325e-6F * second[0].item<float>());
  EXPECT_GT(fp32_of(each.exp_avg, CodeMap::with_sign)[1].item<float>(), 0);
  const float before = each.weight.master[1].item<float>();
  gradient[1] = 0;
  adamw_({each}, {});
  EXPECT_LT(std::fabs(each.weight.master[1].item<float>() - before), 1e-2F);
}

// Weights in a quadratic valley, whose gradients have noise: with every format their means over the
// last steps are nearer to its ground than the noise of one gradient.
TEST(Moment, EveryFormatTrainsToTheSamePlace) {
  constexpr double kNoise = 0.1;
  for (const MomentFormat format : kFormats) {
    at::manual_seed(44);
    AdamwParameter each = parameter(at::randn({1000}), format);
    each.weight.weight_decay = 0;
    Tensor mean = at::zeros({1000});
    for (uint64_t step = 0; step < 1000; ++step) {
      set_streams(each, step);
      const Tensor noise = at::randn({1000}).mul(kNoise);
      each.weight.gradient = each.weight.master.add(noise);
      adamw_({each}, {});
      if (step >= 800) {
        mean.add_(each.weight.master, 1.0 / 200);
      }
    }
    EXPECT_LT(mean.abs().max().item<float>(), kNoise) << static_cast<int>(format);
  }
}

TEST(Moment, ZerosHaveTheFormAndTheBytesThatAreNamed) {
  const Tensor weight = at::randn({30, 20}).t();
  const Moment blocks = zero_moment(weight, MomentFormat::blockwise8, CodeMap::with_sign);
  EXPECT_EQ(blocks.values.strides(), weight.strides());
  EXPECT_EQ(blocks.values.nbytes(), 600U);
  EXPECT_EQ(blocks.scales.numel(), 3);
  EXPECT_EQ(fp32_of(blocks, CodeMap::with_sign).abs().max().item<float>(), 0);
  EXPECT_EQ(zero_moment(weight, MomentFormat::bf16, CodeMap::with_sign).values.nbytes(), 1200U);
}

TEST(Moment, NamesWhatDoesNotFit) {
  const Tensor weight = at::zeros({600});
  const auto refusal = [&](const Moment& momentum) {
    SgdParameter bad = {{weight, {}, weight, 0.1, 0}, momentum};
    return message_of<InvalidArgument>([&] { sgd_({bad}, {}); });
  };
  EXPECT_EQ(refusal(at::zeros({5})),
            "sgd_: parameter 0: momentum does not fit the weight; make it with "
            "zero_moment(weight, ...)");
  EXPECT_EQ(refusal(at::zeros({600}, at::kByte)),
            "sgd_: parameter 0: momentum is Byte without scales; pass scales exactly when it is "
            "Byte");
  EXPECT_EQ(refusal({at::zeros({600}), at::zeros({3})}),
            "sgd_: parameter 0: momentum is Float with scales; pass scales exactly when it is "
            "Byte");
  EXPECT_THAT(refusal({at::zeros({600}, at::kByte), at::zeros({2})}),
              HasSubstr("momentum has 2 scales of Float, not 3 of Float"));
}

}  // namespace
}  // namespace mantissa::ops
