// Updates composed of ATen operations against the element-by-element references.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/ops/adamw.h"
#include "mantissa/ops/ema.h"
#include "mantissa/ops/sgd.h"
#include "mantissa/ops/update_forms_testing.h"
#include "mantissa/tensor/host_reads_testing.h"

namespace mantissa::ops {
namespace {

using at::Tensor;

constexpr float kInf = std::numeric_limits<float>::infinity();

Tensor scalar(double value) { return at::full({}, value, at::kFloat); }

// Each form with some lengths, none of them a multiple of a vector and one empty; gradients of
// other dtypes and strides; a gradient with zeros in it.
std::vector<WeightUpdate> mixed_weights() {
  std::vector<WeightUpdate> result;
  for (const Form& form : kForms) {
    for (const int64_t length : {0, 1, 5, 1023}) {
      result.push_back(weight_of(form, at::randn({length}), at::randn({length}).to(form.dtype)));
    }
    result.push_back(weight_of(form, at::randn({6, 5}).t(), at::randn({5, 6}).to(form.dtype)));
    result.push_back(weight_of(form, at::randn({3, 4}), at::randn({4}).expand({3, 4})));
  }
  result.push_back(weight_of(kForms[0], at::randn({}), at::randn({})));
  result.push_back(weight_of(kForms[1], at::randn({40}), at::randn({40}).clamp_min(0)));
  return result;
}

Tensor cloned(const Tensor& tensor) { return tensor.defined() ? tensor.clone() : tensor; }

WeightUpdate copy(const WeightUpdate& weight) {
  WeightUpdate result = weight;
  result.master = cloned(weight.master);
  result.model = cloned(weight.model);
  result.rest = cloned(weight.rest);
  result.lost = cloned(weight.lost);
  return result;
}

std::vector<AdamwParameter> adamw_parameters(const std::vector<WeightUpdate>& weights) {
  std::vector<AdamwParameter> result;
  for (const WeightUpdate& weight : weights) {
    const Tensor& pattern = weight.master.defined() ? weight.master : weight.model;
    result.push_back({copy(weight), at::zeros_like(pattern, at::kFloat),
                      at::zeros_like(pattern, at::kFloat), at::zeros({}, at::kLong)});
  }
  return result;
}

std::vector<SgdParameter> sgd_parameters(const std::vector<WeightUpdate>& weights, bool momentum) {
  std::vector<SgdParameter> result;
  for (const WeightUpdate& weight : weights) {
    const Tensor& pattern = weight.master.defined() ? weight.master : weight.model;
    result.push_back({copy(weight), momentum ? at::zeros_like(pattern, at::kFloat) : Tensor()});
  }
  return result;
}

// Whether all FP64 numbers within 2^-40 of `value`, relative, round to one FP32 number: a constant
// that two machines compute in FP64 with less error than that is then the same to both.
bool rounds_alike(double value) {
  return static_cast<float>(value * (1 - 0x1p-40)) == static_cast<float>(value * (1 + 0x1p-40));
}

// The corrections are the only thing that may differ from the reference's: see adamw.h.
void expect_corrections_round_alike(const AdamwOptions& options, double lr, int steps) {
  for (int step = 1; step <= steps; ++step) {
    EXPECT_TRUE(rounds_alike(lr / (1 - std::pow(options.beta1, step)))) << step;
    EXPECT_TRUE(rounds_alike(1 / std::sqrt(1 - std::pow(options.beta2, step)))) << step;
  }
}

TEST(AdamwComposed, IsBitForBitTheReferenceOverSeveralSteps) {
  for (const WeightDecay decay : {WeightDecay::decoupled, WeightDecay::l2}) {
    at::manual_seed(121);
    const std::vector<WeightUpdate> weights = mixed_weights();
    const std::vector<AdamwParameter> composed = adamw_parameters(weights);
    const std::vector<AdamwParameter> reference = adamw_parameters(weights);
    const GradientUse use = {scalar(3), scalar(0.3), scalar(0)};
    const AdamwOptions options = {.beta1 = 0.8, .beta2 = 0.97, .eps = 1e-6, .decay = decay};
    expect_corrections_round_alike(options, 0.03, 4);
    for (int step = 0; step < 4; ++step) {
      adamw_composed_(composed, options, use);
      EXPECT_TRUE(adamw_reference_(reference, options, use));
    }
    for (size_t i = 0; i < composed.size(); ++i) {
      SCOPED_TRACE(i);
      expect_same(composed[i].weight, reference[i].weight);
      EXPECT_TRUE(same_bits(composed[i].exp_avg.values, reference[i].exp_avg.values));
      EXPECT_TRUE(same_bits(composed[i].exp_avg_sq.values, reference[i].exp_avg_sq.values));
      EXPECT_EQ(composed[i].step.item<int64_t>(), 4);
    }
  }
}

TEST(SgdComposed, IsBitForBitTheReferenceOverSeveralSteps) {
  for (const SgdOptions& options :
       {SgdOptions{.momentum = 0}, SgdOptions{.momentum = 0.9},
        SgdOptions{.momentum = 0.7, .kind = Momentum::nesterov, .decay = WeightDecay::l2}}) {
    at::manual_seed(122);
    const std::vector<WeightUpdate> weights = mixed_weights();
    const std::vector<SgdParameter> composed = sgd_parameters(weights, options.momentum != 0);
    const std::vector<SgdParameter> reference = sgd_parameters(weights, options.momentum != 0);
    const GradientUse use = {scalar(3), scalar(0.3), scalar(0)};
    for (int step = 0; step < 3; ++step) {
      sgd_composed_(composed, options, use);
      EXPECT_TRUE(sgd_reference_(reference, options, use));
    }
    for (size_t i = 0; i < composed.size(); ++i) {
      SCOPED_TRACE(i);
      expect_same(composed[i].weight, reference[i].weight);
      EXPECT_TRUE(same_bits(composed[i].momentum.values, reference[i].momentum.values));
    }
  }
}

TEST(EmaComposed, IsBitForBitTheReferenceAndSelected) {
  at::manual_seed(123);
  std::vector<EmaParameter> composed;
  std::vector<EmaParameter> reference;
  for (const WeightUpdate& weight : mixed_weights()) {
    const Tensor shadow = weights_of(weight).add(1);
    composed.push_back({weight, shadow});
    reference.push_back({weight, shadow.clone()});
  }
  const Tensor rate = scalar(1 - 0.9);
  ema_composed_(composed, rate, at::full({}, false));
  ema_composed_(composed, rate, at::full({}, true));
  ema_composed_(composed, rate);
  ema_reference_(reference, 0.9);
  ema_reference_(reference, 0.9);
  for (size_t i = 0; i < composed.size(); ++i) {
    EXPECT_TRUE(same_bits(composed[i].shadow, reference[i].shadow)) << i;
  }
}

// Gradients, and so all that is computed from them, are NaN or infinite.
TEST(AdamwComposed, ASkippedStepLeavesEverythingBitForBit) {
  for (const float found_inf : {1.0F, std::nanf("")}) {
    at::manual_seed(124);
    std::vector<WeightUpdate> weights = mixed_weights();
    for (WeightUpdate& weight : weights) {  // with both zeros, which arithmetic could turn around
      const Tensor& kept = weight.master.defined() ? weight.master : weight.model;
      kept.masked_fill_(kept.gt(1), -0.0).masked_fill_(kept.lt(-1), 0.0);
    }
    std::vector<AdamwParameter> after = adamw_parameters(weights);
    adamw_composed_(after, {}, {{}, {}, scalar(0)});
    std::vector<AdamwParameter> before = after;
    for (size_t i = 0; i < after.size(); ++i) {
      AdamwParameter& each = before[i];
      each.weight = copy(each.weight);
      each.exp_avg = each.exp_avg.values.clone();
      each.exp_avg_sq = each.exp_avg_sq.values.clone();
      each.step = each.step.clone();
      after[i].weight.gradient =
          at::full(after[i].exp_avg.values.sizes(), i % 2 == 0 ? kInf : std::nanf(""), at::kFloat);
    }
    adamw_composed_(after, {}, {scalar(0), {}, scalar(found_inf)});
    for (size_t i = 0; i < after.size(); ++i) {
      SCOPED_TRACE(i);
      expect_same(after[i].weight, before[i].weight);
      EXPECT_TRUE(same_bits(after[i].exp_avg.values, before[i].exp_avg.values));
      EXPECT_TRUE(same_bits(after[i].exp_avg_sq.values, before[i].exp_avg_sq.values));
      EXPECT_EQ(after[i].step.item<int64_t>(), 1);
    }
  }
}

TEST(SgdComposed, ASkippedStepLeavesEverythingBitForBit) {
  at::manual_seed(125);
  std::vector<SgdParameter> after = sgd_parameters(mixed_weights(), true);
  sgd_composed_(after, {});
  std::vector<SgdParameter> before = after;
  for (size_t i = 0; i < after.size(); ++i) {
    before[i].weight = copy(after[i].weight);
    before[i].momentum = after[i].momentum.values.clone();
    after[i].weight.gradient = at::full(after[i].momentum.values.sizes(), kInf, at::kFloat);
  }
  sgd_composed_(after, {}, {{}, {}, scalar(1)});
  for (size_t i = 0; i < after.size(); ++i) {
    expect_same(after[i].weight, before[i].weight);
    EXPECT_TRUE(same_bits(after[i].momentum.values, before[i].momentum.values));
  }
}

TEST(AdamwComposed, ARateOnTheDeviceIsTheSameNumber) {
  at::manual_seed(126);
  const std::vector<WeightUpdate> weights = mixed_weights();
  const std::vector<AdamwParameter> number = adamw_parameters(weights);
  std::vector<AdamwParameter> tensor = adamw_parameters(weights);
  for (AdamwParameter& each : tensor) {
    each.weight.lr = 0.5;
    each.weight.lr_factor = at::full({}, 0.06, at::kDouble);
  }
  adamw_composed_(number, {});
  adamw_composed_(tensor, {});
  for (size_t i = 0; i < number.size(); ++i) {
    expect_same(number[i].weight, tensor[i].weight);
  }
}

TEST(SgdComposed, SparseGradientsUpdateAsDenseOnes) {
  const Tensor indices = at::tensor({3, 0, 3}, at::kLong).unsqueeze(0);
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf}) {
    const Tensor values = at::tensor({1.5F, 2.0F, 0.25F}).to(dtype);
    const Tensor w = at::ones({5});
    sgd_composed_({{weight_of(kForms[0], w, at::sparse_coo_tensor(indices, values, {5})), {}}},
                  {.momentum = 0});
    WeightUpdate update = weight_of(kForms[0], w, at::sparse_coo_tensor(indices, values, {5}));
    update.lr = 1;
    update.weight_decay = 0;
    sgd_composed_({{update, {}}}, {.momentum = 0});
    EXPECT_TRUE(at::equal(update.master, at::tensor({-1.0F, 1.0F, 1.0F, -0.75F, 1.0F})));
  }
}

TEST(AdamwComposed, AutogradNoticesThatWeightsChanged) {
  for (const Form& form : kForms) {
    const std::vector<AdamwParameter> one =
        adamw_parameters({weight_of(form, at::ones({3}), at::ones({3}))});
    const WeightUpdate& weight = one[0].weight;
    const Tensor& seen = weight.model.defined() ? weight.model : weight.master;
    const auto version = seen._version();
    adamw_composed_(one, {}, {{}, {}, scalar(0)});
    EXPECT_GT(seen._version(), version);
  }
}

TEST(AdamwComposed, LearnsNothingOnTheHost) {
  at::manual_seed(127);
  std::vector<WeightUpdate> weights = mixed_weights();
  weights.push_back(
      weight_of(kForms[0], at::ones({5}),
                at::sparse_coo_tensor(at::zeros({1, 2}, at::kLong), at::ones({2}), {5})));
  const std::vector<AdamwParameter> adamw = adamw_parameters(weights);
  const std::vector<SgdParameter> sgd = sgd_parameters(weights, true);
  std::vector<EmaParameter> ema;
  ema.reserve(weights.size());
  for (const WeightUpdate& weight : weights) {
    ema.push_back({weight, weights_of(weight)});
  }
  const GradientUse use = {scalar(4), scalar(0.5), scalar(0)};
  const tensor::HostReads reads;
  (void)scalar(1).item<float>();
  EXPECT_EQ(tensor::HostReads::names().size(), 1U);  // so a read would be seen
  adamw_composed_(adamw, {}, use);
  sgd_composed_(sgd, {}, use);
  ema_composed_(ema, scalar(0.5), at::full({}, false));
  EXPECT_EQ(tensor::HostReads::names().size(), 1U) << tensor::HostReads::names().back();
}

TEST(AdamwComposed, NamesWhatDoesNotFit) {
  const AdamwParameter good =
      adamw_parameters({weight_of(kForms[1], at::ones({2}), at::ones({2}))})[0];
  const auto message = [&](const AdamwParameter& bad, const GradientUse& use = {}) -> std::string {
    try {
      adamw_composed_({good, bad}, {}, use);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  AdamwParameter bad = good;
  bad.weight.gradient = at::ones({2}, at::TensorOptions(at::kMeta).dtype(at::kFloat));
  EXPECT_EQ(message(bad), "adamw_composed_: parameter 1: the gradient is on meta; move it to cpu");
  bad = good;
  bad.exp_avg = at::zeros({2}, at::kBFloat16);
  EXPECT_EQ(message(bad),
            "adamw_composed_: parameter 1: exp_avg is BFloat16, which only the fused passes "
            "store; use MomentFormat::fp32");
  bad = good;
  bad.weight.master = Tensor();
  bad.weight.rounding = numerics::Rounding::stochastic;
  EXPECT_EQ(message(bad),
            "adamw_composed_: parameter 1: rounding is stochastic, which only the fused passes "
            "do; keep a master or a rest, or round to nearest");
  bad = good;
  bad.weight.lr_factor = at::ones({1});
  EXPECT_EQ(message(bad),
            "adamw_composed_: parameter 1: lr is Float of shape [1] on cpu; pass a number or a 0-d "
            "Float or Double tensor on cpu");
  EXPECT_EQ(message(good, {at::ones({}, at::kDouble), {}, {}}),
            "adamw_composed_: scale is Double of shape []; pass a 0-d Float tensor");
  EXPECT_EQ(message(good, {{}, {}, at::ones({}, at::TensorOptions(at::kMeta).dtype(at::kFloat))}),
            "adamw_composed_: found_inf is on meta; move it to cpu");
  bad = good;
  bad.weight.lr_factor = at::ones({});
  EXPECT_EQ(message_of<InvalidArgument>([&] { adamw_({bad}, {}); }),
            "adamw_: parameter 0: lr_factor is for the composed and the enqueued passes; the fused "
            "ones take a "
            "number, lr");
}

}  // namespace
}  // namespace mantissa::ops
