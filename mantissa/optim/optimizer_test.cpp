#include "mantissa/optim/optimizer.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include <ATen/Context.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/optim/clip.h"
#include "mantissa/optim/schedule.h"

namespace mantissa::optim {
namespace {

using ::testing::HasSubstr;

using at::Tensor;

constexpr float kInf = std::numeric_limits<float>::infinity();

static_assert(!std::is_copy_constructible_v<Optimizer>);
static_assert(std::is_move_constructible_v<Optimizer>);

Tensor scalar(double value) { return at::full({}, value, at::kFloat); }

Tensor leaf(const Tensor& value) { return value.detach().clone().requires_grad_(); }

void set_gradient(const Tensor& parameter, const Tensor& gradient) {
  parameter.mutable_grad() = gradient.to(parameter.scalar_type());
}

const OptimizerOptions kPlainSgd = {.kind = Kind::sgd, .weight_decay = 0, .momentum = 0};

// A model of one FP32 and two 16-bit parameters, one of them transposed in memory.
struct Model {
  Model()
      : norm(leaf(at::randn({7}))),
        weight(leaf(at::randn({5, 3}).to(at::kBFloat16))),
        head(leaf(at::randn({3, 4}).t().to(at::kHalf))) {}

  tensor::ParameterList parameters() const {
    return {{"norm.weight", norm}, {"weight", weight}, {"head", head}};
  }

  void set_random_gradients() const {
    for (const auto& [name, value] : parameters()) {
      set_gradient(value, at::randn(value.sizes()));
    }
  }

  Tensor norm;
  Tensor weight;
  Tensor head;
};

TEST(Optimizer, BytesAParameterAreThoseOfItsMasters) {
  const std::vector<std::pair<Masters, int64_t>> expected = {{Masters::fp32, 16},
                                                             {Masters::split, 14},
                                                             {Masters::compensated, 14},
                                                             {Masters::stochastic, 12},
                                                             {Masters::none, 12}};
  for (const auto& [masters, bytes_each] : expected) {
    for (const auto& [format, saved] : {std::pair{MomentFormat::fp32, 0.0},
                                        {MomentFormat::bf16, 4.0},
                                        {MomentFormat::blockwise8, 6 - 2 * 4.0 / 256}}) {
      const at::Tensor w = at::ones({1024}, at::kBFloat16).requires_grad_();
      const Optimizer optimizer({{"w", w}}, {.masters = masters, .moments = format});
      set_gradient(w, at::ones({1024}));
      const OptimizerBytes bytes = optimizer.bytes();
      EXPECT_EQ(bytes.weights + bytes.masters + bytes.moments + bytes.gradients,
                1024 * (static_cast<double>(bytes_each) - saved))
          << to_string(masters) << " " << to_string(format);
    }
  }
}

struct Setup {
  Kind kind;
  Masters masters;
  MomentFormat moments;
};

std::vector<Setup> every_setup() {
  std::vector<Setup> result;
  for (const Kind kind : {Kind::adamw, Kind::adam, Kind::sgd}) {
    for (const Masters masters : {Masters::fp32, Masters::split, Masters::compensated,
                                  Masters::stochastic, Masters::none}) {
      for (const MomentFormat moments :
           {MomentFormat::fp32, MomentFormat::bf16, MomentFormat::blockwise8}) {
        result.push_back({kind, masters, moments});
      }
    }
  }
  return result;
}

TEST(Optimizer, AnInterruptionChangesNothingWhateverTheMastersAndMoments) {
  for (const auto& [kind, masters, moments] : every_setup()) {
    SCOPED_TRACE(::testing::Message()
                 << to_string(kind) << " " << to_string(masters) << " " << to_string(moments));
    at::manual_seed(3);
    const at::Tensor start = at::randn({300}).to(at::kBFloat16);
    const std::vector<at::Tensor> gradients = {at::randn({300}), at::randn({300}), at::randn({300}),
                                               at::randn({300})};
    const OptimizerOptions options{.kind = kind, .masters = masters, .moments = moments, .seed = 5};
    const at::Tensor whole = start.clone().requires_grad_();
    Optimizer uninterrupted({{"w", whole}}, options);
    at::Tensor saved_weights;
    tensor::StateDict saved;
    for (size_t i = 0; i < gradients.size(); ++i) {
      set_gradient(whole, gradients[i]);
      uninterrupted.step({.lr = 1e-3});
      if (i == 1) {
        saved_weights = whole.detach().clone();
        const tensor::StateDict live = uninterrupted.state_dict();
        for (const auto& [name, tensor] : live.tensors()) {
          saved.set(name, tensor.clone());
        }
        for (const auto& [name, scalar] : live.scalars()) {
          std::visit([&, key = name](const auto& value) { saved.set(key, value); }, scalar);
        }
      }
    }
    const at::Tensor resumed = saved_weights.clone().requires_grad_();
    Optimizer second({{"w", resumed}}, options);
    second.load_state_dict(saved);
    for (size_t i = 2; i < gradients.size(); ++i) {
      set_gradient(resumed, gradients[i]);
      second.step({.lr = 1e-3});
    }
    EXPECT_TRUE(at::equal(resumed, whole));
    EXPECT_TRUE(at::equal(second.master("w"), uninterrupted.master("w")));
    const tensor::StateDict expected = uninterrupted.state_dict();
    const tensor::StateDict actual = second.state_dict();
    for (const auto& [name, tensor] : expected.tensors()) {
      EXPECT_TRUE(at::equal(actual.tensor(name), tensor)) << name;
    }
  }
}

TEST(Optimizer, MomentsAreStoredInTheirFormat) {
  const at::Tensor w = at::ones({300}).requires_grad_();
  const Optimizer bf16({{"w", w}}, {.moments = MomentFormat::bf16});
  EXPECT_EQ(bf16.state_dict().tensor("exp_avg_sq.w").scalar_type(), at::kBFloat16);
  const Optimizer blocks({{"w", w}}, {.moments = MomentFormat::blockwise8});
  EXPECT_EQ(blocks.state_dict().tensor("exp_avg.w").scalar_type(), at::kByte);
  EXPECT_EQ(blocks.state_dict().tensor("exp_avg_scales.w").sizes(), (at::IntArrayRef{2}));
  const Optimizer sgd({{"w", w}}, {.kind = Kind::sgd, .moments = MomentFormat::blockwise8});
  EXPECT_EQ(sgd.state_dict().tensor("momentum.w").scalar_type(), at::kByte);
}

TEST(Optimizer, MomentsOfTheSameStepAndOfOthersAreRoundedApart) {
  // A gradient that is its own square, so that both moments of step 1 are 0.1 with these betas, and
  // of a weight beside it too: only the random words differ.
  const at::Tensor w = at::zeros({1000}).requires_grad_();
  const at::Tensor v = at::zeros({1000}).requires_grad_();
  Optimizer optimizer({{"w", w}, {"v", v}},
                      {.beta1 = 0.9, .beta2 = 0.9, .moments = MomentFormat::bf16});
  set_gradient(w, at::ones({1000}));
  set_gradient(v, at::ones({1000}));
  optimizer.step({.lr = 0});
  const tensor::StateDict state = optimizer.state_dict();
  EXPECT_FALSE(at::equal(state.tensor("exp_avg.w"), state.tensor("exp_avg_sq.w")));
  EXPECT_FALSE(at::equal(state.tensor("exp_avg.w"), state.tensor("exp_avg.v")));
}

TEST(Optimizer, AdamIsAdamwWithoutDecayAndNotWithIt) {
  at::manual_seed(14);
  const Tensor start = at::randn({50});
  const Tensor gradient = at::randn({50});
  const auto after_step = [&](Kind kind, double decay) {
    const Tensor w = leaf(start);
    Optimizer optimizer({{"w", w}}, {.kind = kind, .weight_decay = decay});
    set_gradient(w, gradient);
    optimizer.step({.lr = 0.01});
    return w.detach();
  };
  EXPECT_TRUE(at::equal(after_step(Kind::adam, 0), after_step(Kind::adamw, 0)));
  EXPECT_FALSE(at::equal(after_step(Kind::adam, 0.5), after_step(Kind::adamw, 0.5)));
  // The first step of Adam is lr times the sign of the penalized gradient, within ten roundings of
  // FP32 and eps, for gradients that are not tiny.
  const Tensor penalized = gradient.add(start, 0.5);
  const Tensor expected = start.sub(penalized.sign(), 0.01);
  const Tensor error = after_step(Kind::adam, 0.5).sub(expected).abs();
  const Tensor tolerance = penalized.abs()
                               .reciprocal()
                               .mul(1e-8)
                               .add(10 * 0x1p-24)
                               .mul(0.01)
                               .add(start.abs(), 2 * 0x1p-24);
  EXPECT_LE(error.div(tolerance).max().item<float>(), 1);
}

Tensor sparse_gradient(const std::vector<int64_t>& rows, const Tensor& values, int64_t size) {
  const Tensor indices = at::tensor(rows, at::kLong).unsqueeze(0);
  return at::sparse_coo_tensor(indices, values, {size});
}

// Duplicate indices are added before anything is read, and the sum is what counts.
TEST(Optimizer, SparseGradientsAreSummedAndUpdateAsDenseOnes) {
  const Tensor sparse = leaf(at::ones({4}));
  const Tensor dense = leaf(at::ones({4}));
  Optimizer a({{"w", sparse}});
  Optimizer b({{"w", dense}});
  for (int step = 0; step < 3; ++step) {
    sparse.mutable_grad() = sparse_gradient({1, 3, 1}, at::tensor({0.5F, 2.0F, 0.25F}), 4);
    set_gradient(dense, at::tensor({0.0F, 0.75F, 0.0F, 2.0F}));
    EXPECT_GT(a.bytes().gradients, 0);
    const GradientReport report = a.read_gradients();
    EXPECT_TRUE(at::equal(report.norm, b.read_gradients().norm));
    EXPECT_EQ(a.step({.lr = 0.1}), StepOutcome::applied);
    b.step({.lr = 0.1});
    EXPECT_TRUE(at::equal(sparse, dense));
  }
}

TEST(Optimizer, SparseDuplicatesThatOverflowOnlyTogetherSkipTheStep) {
  for (const auto& [dtype, value] : {std::pair{at::kHalf, 6e4F}, std::pair{at::kFloat, 3e38F}}) {
    const Tensor weight = leaf(at::ones({2}, dtype));
    Optimizer optimizer({{"w", weight}}, kPlainSgd);
    weight.mutable_grad() = sparse_gradient({0, 0}, at::full({2}, value, dtype), 2);
    const GradientReport report = optimizer.read_gradients();
    EXPECT_EQ(report.found_inf.item<float>(), 1);
    EXPECT_EQ(optimizer.step({.lr = 0.1, .found_inf = report.found_inf}), StepOutcome::skipped);
    EXPECT_TRUE(at::equal(weight, at::ones({2}, dtype)));
  }
}

// A row of a 16-bit table that is used 1000 times: added in BF16 its gradient would be 256.
TEST(Optimizer, SparseGradientsOf16BitsAreSummedWhole) {
  for (const auto& [dtype, uses] : {std::pair{at::kBFloat16, 1000}, std::pair{at::kHalf, 6000}}) {
    for (const bool accumulates : {false, true}) {
      const Tensor weight = leaf(at::zeros({2}, dtype));
      Optimizer optimizer({{"w", weight}}, kPlainSgd);
      weight.mutable_grad() =
          sparse_gradient(std::vector<int64_t>(uses, 1), at::ones({uses}, dtype), 2);
      if (accumulates) {
        optimizer.accumulate_();
      }
      EXPECT_EQ(optimizer.read_gradients().norm.item<float>(), uses) << dtype;
      EXPECT_EQ(optimizer.step({.lr = 0.5}), StepOutcome::applied);
      EXPECT_EQ(optimizer.master("w")[1].item<float>(), -0.5F * static_cast<float>(uses)) << dtype;
    }
  }
}

TEST(Optimizer, SparseGradientsOfMicrobatchesAddUp) {
  const Tensor weight = leaf(at::zeros({3}, at::kBFloat16));
  Optimizer optimizer({{"w", weight}}, kPlainSgd);
  for (int microbatch = 0; microbatch < 2; ++microbatch) {
    weight.mutable_grad() = sparse_gradient({2, 2}, at::ones({2}, at::kBFloat16), 3);
    optimizer.accumulate_();
  }
  optimizer.step({.lr = 0.5});
  EXPECT_TRUE(at::equal(optimizer.master("w"), at::tensor({0.0F, 0.0F, -2.0F})));
  // 2 * 6e4 is beyond FP16, and not beyond the FP32 sum that duplicates are added in here.
  const Tensor half = leaf(at::zeros({1}, at::kHalf));
  Optimizer other({{"w", half}}, kPlainSgd);
  half.mutable_grad() = sparse_gradient({0, 0}, at::full({2}, 6e4, at::kHalf), 1);
  other.accumulate_();
  const GradientReport report = other.read_gradients();
  EXPECT_EQ(report.found_inf.item<float>(), 0);
  EXPECT_EQ(report.norm.item<float>(), 2 * at::full({}, 6e4, at::kHalf).item<float>());
}

// A scaler that divides gradients in place would divide them twice.
TEST(Optimizer, TwoOptimizersOverOneParameterReadTheSameUnscaledGradient) {
  const Tensor shared = leaf(at::ones({1}));
  Optimizer first({{"w", shared}}, kPlainSgd);
  Optimizer second({{"w", shared}}, kPlainSgd);
  set_gradient(shared, at::full({1}, 4));
  const Tensor scale = scalar(4);
  for (Optimizer* optimizer : {&first, &second}) {
    const GradientReport report = optimizer->read_gradients(scale);
    EXPECT_EQ(report.norm.item<float>(), 1);
    optimizer->step({.lr = 0.25, .scale = scale, .found_inf = report.found_inf});
    EXPECT_EQ(shared.grad().item<float>(), 4);
  }
  EXPECT_EQ(shared.item<float>(), 0.5);
}

TEST(Optimizer, AStateWithOtherMomentsIsRefused) {
  const at::Tensor w = at::ones({4}).requires_grad_();
  const Optimizer fp32({{"w", w}});
  Optimizer blocks({{"w", w}}, {.moments = MomentFormat::blockwise8});
  EXPECT_EQ(message_of<Corruption>([&] { blocks.load_state_dict(fp32.state_dict()); }),
            "optimizer: the state has moments \"fp32\", this optimizer \"blockwise8\"; resume with "
            "the setting that was saved");
}

TEST(Optimizer, AStateWithOtherMastersIsRefused) {
  const at::Tensor w = at::ones({4}, at::kBFloat16).requires_grad_();
  const Optimizer split({{"w", w}}, {.masters = Masters::split});
  Optimizer stochastic({{"w", w}}, {.masters = Masters::stochastic});
  EXPECT_THROW(stochastic.load_state_dict(split.state_dict()), Corruption);
}

TEST(Optimizer, SplitMastersNeedBf16) {
  const at::Tensor w = at::ones({4}, at::kHalf).requires_grad_();
  try {
    const Optimizer optimizer({{"head", w}}, {.masters = Masters::split});
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "optimizer: parameter \"head\" is Half, which is no half of an FP32 number; split "
                 "masters need BFloat16, use fp32 or compensated");
  }
}

TEST(Optimizer, LostUpdatesNameTheParameter) {
  const at::Tensor w = at::ones({10}, at::kBFloat16).requires_grad_();
  const at::Tensor v = at::full({10}, 1e-3, at::kBFloat16).requires_grad_();
  Optimizer optimizer(
      {{"w", w}, {"v", v}},
      {.kind = Kind::sgd, .weight_decay = 0, .momentum = 0, .masters = Masters::none});
  set_gradient(w, at::ones({10}));
  set_gradient(v, at::ones({10}));
  optimizer.step({.lr = 1e-3});
  const std::vector<LostUpdates> lost = optimizer.lost_updates();
  ASSERT_EQ(lost.size(), 1U);
  EXPECT_EQ(lost[0].parameter, "w");
  EXPECT_EQ(lost[0].share, 1.0);
}

TEST(Optimizer, MastersAreExactCopiesOf16BitParametersAndFp32OnesNeedNone) {
  at::manual_seed(1);
  const Model model;
  const Optimizer optimizer(model.parameters());
  EXPECT_TRUE(at::equal(optimizer.master("weight"), model.weight.to(at::kFloat)));
  EXPECT_EQ(optimizer.master("weight").scalar_type(), at::kFloat);
  EXPECT_EQ(optimizer.master("norm.weight").data_ptr(), model.norm.data_ptr());
  const OptimizerBytes bytes = optimizer.bytes();
  EXPECT_EQ(bytes.weights, 7 * 4 + 15 * 2 + 12 * 2);
  EXPECT_EQ(bytes.masters, (15 + 12) * 4);
  EXPECT_EQ(bytes.moments, 2 * (7 + 15 + 12) * 4);
  EXPECT_EQ(bytes.gradients + bytes.accumulators, 0);
}

TEST(Optimizer, AfterAStepTheModelIsTheMasterRounded) {
  at::manual_seed(2);
  const Model model;
  Optimizer optimizer(model.parameters());
  model.set_random_gradients();
  EXPECT_EQ(optimizer.step({.lr = 0.01}), StepOutcome::applied);
  EXPECT_TRUE(at::equal(model.weight, optimizer.master("weight").to(at::kBFloat16)));
  EXPECT_TRUE(at::equal(model.head, optimizer.master("head").to(at::kHalf)));
  EXPECT_FALSE(at::equal(optimizer.master("head"), model.head.to(at::kFloat)));
  EXPECT_EQ(optimizer.steps(), 1);
}

// Each update of 1e-3 is below half of BF16's spacing at 1, 2^-8 above and 2^-9 below it: without a
// master the weight would stay at 1. The master rounds 1000 times to at most 2^-25.
TEST(Optimizer, SmallUpdatesOfABf16WeightAddUpInTheMaster) {
  const Tensor weight = leaf(at::ones({1}, at::kBFloat16));
  Optimizer optimizer({{"weight", weight}}, kPlainSgd);
  for (int step = 0; step < 1000; ++step) {
    set_gradient(weight, at::ones({1}));
    optimizer.step({.lr = 1e-3});
  }
  const double lr_rounding = 1000 * std::abs(static_cast<double>(1e-3F) - 1e-3);
  EXPECT_NEAR(optimizer.master("weight").item<float>(), 0, 1000 * 0x1p-25 + lr_rounding);
  EXPECT_NEAR(weight.item<float>(), 0, 1000 * 0x1p-25 + lr_rounding);
}

TEST(Optimizer, EpsHoldsForFp16Parameters) {
  const Tensor weight = leaf(at::ones({2}, at::kHalf));
  Optimizer optimizer({{"weight", weight}}, {.weight_decay = 0});
  set_gradient(weight, at::tensor({0.0F, 1e-3F}));
  optimizer.step({.lr = 1e-3});
  EXPECT_TRUE(at::equal(weight, at::tensor({1.0F, 0.999F}).to(at::kHalf)));
}

// Elements whose gradient is 0 stay, and the others move by lr, in every way to keep weights and
// moments. An update is lr g / (|g| + eps): eps is 2^-9 of these g, and a moment in BF16 is off by
// 2^-7 twice at most, the second one under a root. Weights are rounded by a step of their format.
TEST(Optimizer, EpsHoldsWhateverTheMastersAndMoments) {
  const Tensor gradient = at::zeros({300});
  gradient.slice(0, 0, 300, 3).fill_(1e-3);
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
    for (const auto& [kind, masters, moments] : every_setup()) {
      if (kind == Kind::sgd || (masters == Masters::split && dtype == at::kHalf)) {
        continue;
      }
      SCOPED_TRACE(::testing::Message() << dtype << " " << to_string(kind) << " "
                                        << to_string(masters) << " " << to_string(moments));
      const Tensor w = leaf(at::ones({300}, dtype));
      Optimizer optimizer({{"w", w}}, {.kind = kind,
                                       .eps = 1e-6,
                                       .weight_decay = 0,
                                       .masters = masters,
                                       .moments = moments,
                                       .seed = 3});
      constexpr double kLr = 0x1p-4;  // 8 steps of BF16 below 1
      for (int step = 0; step < 2; ++step) {
        set_gradient(w, gradient);
        optimizer.step({.lr = kLr});
        const Tensor expected = at::ones({300}).sub(gradient.sign(), kLr * (step + 1));
        const double step_of_format = dtype == at::kHalf ? 0x1p-11 : 0x1p-8;
        const Tensor error = w.to(at::kFloat).sub(expected).abs();
        EXPECT_LE(error.max().item<double>(), (step + 1) * (kLr * 0x1p-5 + step_of_format));
        EXPECT_EQ(error.masked_select(gradient.eq(0)).max().item<double>(), 0);
      }
    }
  }
}

// FP16 has nothing between 0 and 2^-24; gradients there are larger than eps, and their squares are
// numbers of FP32. All equal, so each moves by lr.
TEST(Optimizer, EpsHoldsForTheSmallestFp16Gradients) {
  for (const Kind kind : {Kind::adamw, Kind::adam}) {
    for (const double size : {0x1p-24, 0x1p-20, 1.0, 65504.0}) {
      const Tensor w = leaf(at::ones({3}, at::kHalf));
      Optimizer optimizer({{"w", w}}, {.kind = kind, .eps = 1e-10, .weight_decay = 0});
      set_gradient(w, at::full({3}, size));
      optimizer.step({.lr = 0.25});
      // eps is 2^-9 of the smallest at most; the weight is rounded to steps of 2^-11.
      EXPECT_NEAR(w[0].item<float>(), 0.75, 0.25 * 0x1p-9 + 0x1p-12) << size;
    }
  }
}

// Clipping is of the unscaled gradients: with the scaled ones the update would be 1.5e-5.
TEST(Optimizer, ClippedUpdatesHaveTheLargestNormWhateverTheScale) {
  const Tensor weight = leaf(at::zeros({16}));
  Optimizer optimizer({{"weight", weight}}, kPlainSgd);
  set_gradient(weight, at::full({16}, 65536, at::kFloat));
  const Tensor scale = scalar(65536);
  const GradientReport report = optimizer.read_gradients(scale);
  EXPECT_EQ(report.norm.item<float>(), 4);
  EXPECT_EQ(report.found_inf.item<float>(), 0);
  optimizer.step({1.0, scale, clip_factor(report.norm, 1.0), report.found_inf});
  EXPECT_NEAR(weight.norm().item<float>(), 1, 1e-6);
}

TEST(Optimizer, ClippedUpdatesHaveTheLargestNormInEveryFormatAndInMicrobatches) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const double scale : {0x1p-6, 1.0, 1024.0, 3.0}) {
      for (const int microbatches : {1, 2}) {
        SCOPED_TRACE(::testing::Message() << dtype << " " << scale << " " << microbatches);
        const Tensor weight = leaf(at::zeros({16}, dtype));
        Optimizer optimizer({{"weight", weight}}, kPlainSgd);
        for (int i = 0; i < microbatches; ++i) {
          const Tensor gradient = at::full({16}, 4 * scale).to(dtype);
          weight.mutable_grad() = weight.grad().defined() ? weight.grad().add(gradient) : gradient;
          if (microbatches > 1) {
            optimizer.accumulate_();
          }
        }
        const GradientReport report = optimizer.read_gradients(scalar(scale));
        // Unscaled by an FP32 product with an FP32 reciprocal, and rounded at the end.
        EXPECT_NEAR(report.norm.item<float>(), 16 * microbatches, 64 * 0x1p-22);
        optimizer.step({1.0, scalar(scale), clip_factor(report.norm, 1.0), report.found_inf});
        EXPECT_NEAR(optimizer.master("weight").norm().item<float>(), 1, 1e-6);
      }
    }
  }
}

TEST(Optimizer, ReadingTwiceOrNeverGivesTheSameStep) {
  at::manual_seed(3);
  const Model once;
  const Tensor start = once.norm.detach().clone();
  const Tensor other = leaf(start);
  Optimizer a({{"w", once.norm}});
  Optimizer b({{"w", other}});
  set_gradient(once.norm, at::ones({7}));
  set_gradient(other, at::ones({7}));
  (void)a.read_gradients(scalar(4));
  const GradientReport report = a.read_gradients(scalar(4));
  a.step({.lr = 0.1, .scale = scalar(4), .found_inf = report.found_inf});
  b.step({.lr = 0.1, .scale = scalar(4)});
  EXPECT_TRUE(at::equal(once.norm, other));
}

TEST(Optimizer, ReadsStatisticsOfEachParameterThatHasAGradient) {
  for (const bool fused : {true, false}) {
    const Model model;
    Optimizer optimizer(model.parameters(), {.fused = fused});
    set_gradient(model.norm, at::full({7}, 4));
    set_gradient(model.head, at::full({4, 3}, 0x1p-24));
    const GradientReport report = optimizer.read_gradients(scalar(4), GradientDetail::parameters);
    ASSERT_EQ(report.parameters.size(), 2);
    EXPECT_EQ(report.parameters[0].parameter, "norm.weight");
    EXPECT_EQ(report.parameters[0].statistics.largest, 1);
    EXPECT_EQ(report.parameters[0].statistics.fp16_zero, 0);
    EXPECT_EQ(report.parameters[1].parameter, "head");
    EXPECT_EQ(report.parameters[1].statistics.fp16_zero, model.head.numel());
    EXPECT_TRUE(optimizer.read_gradients(scalar(4)).parameters.empty());
  }
}

std::vector<Tensor> snapshot(const Model& model, const Optimizer& optimizer) {
  std::vector<Tensor> result = {model.norm.detach().clone(), model.weight.detach().clone(),
                                model.head.detach().clone()};
  const tensor::StateDict state = optimizer.state_dict();
  for (const auto& [name, tensor] : state.tensors()) {
    result.push_back(tensor.clone());
  }
  return result;
}

TEST(Optimizer, ASkippedStepLeavesEverythingBitEqual) {
  for (const auto& [kind, masters, moments] : every_setup()) {
    if (masters == Masters::split) {
      continue;  // the model has an FP16 parameter
    }
    SCOPED_TRACE(::testing::Message()
                 << to_string(kind) << " " << to_string(masters) << " " << to_string(moments));
    at::manual_seed(4);
    const Model model;
    Optimizer optimizer(model.parameters(),
                        {.kind = kind, .masters = masters, .moments = moments, .seed = 6});
    model.set_random_gradients();
    optimizer.step({.lr = 0.01});
    const std::vector<Tensor> before = snapshot(model, optimizer);
    const auto version = model.weight._version();
    model.set_random_gradients();
    model.head.mutable_grad()[1][2] = kInf;
    const GradientReport report = optimizer.read_gradients(scalar(2));
    EXPECT_EQ(report.found_inf.item<float>(), 1);
    EXPECT_EQ(optimizer.step({.lr = 0.01, .scale = scalar(2), .found_inf = report.found_inf}),
              StepOutcome::skipped);
    EXPECT_EQ(optimizer.steps(), 1);
    EXPECT_EQ(model.weight._version(), version);
    const std::vector<Tensor> after = snapshot(model, optimizer);
    for (size_t i = 0; i < before.size(); ++i) {
      EXPECT_TRUE(at::equal(before[i], after[i])) << i;
    }
  }
}

TEST(Optimizer, TheScheduleWaitsForASkippedStep) {
  const Tensor weight = leaf(at::zeros({1}));
  Optimizer optimizer({{"weight", weight}}, kPlainSgd);
  const Schedule schedule = {.lr = 1, .warmup_steps = 4};
  set_gradient(weight, at::ones({1}));
  optimizer.step({.lr = lr_at(schedule, optimizer.steps()), .found_inf = scalar(1)});
  optimizer.step({.lr = lr_at(schedule, optimizer.steps()), .found_inf = scalar(0)});
  EXPECT_EQ(weight.item<float>(), -0.25F);
}

TEST(Optimizer, EveryScheduleWaitsForSkippedStepsWhereverTheyAre) {
  const std::vector<Schedule> schedules = {
      {.lr = 1, .warmup_steps = 4},
      {.kind = ScheduleKind::cosine, .lr = 1, .warmup_steps = 2, .total_steps = 8, .floor = 0.125},
      {.kind = ScheduleKind::inverse_sqrt, .lr = 1, .warmup_steps = 1}};
  for (size_t i = 0; i < schedules.size(); ++i) {
    for (const std::string steps : {"x.....", "...xx...", "x.x.xxx....", "......x"}) {
      SCOPED_TRACE(::testing::Message() << i << " " << steps);
      const Tensor weight = leaf(at::zeros({1}));
      Optimizer optimizer({{"weight", weight}}, kPlainSgd);
      float expected = 0;
      int64_t applied = 0;
      for (const char each : steps) {
        set_gradient(weight, at::full({1}, each == '.' ? 1 : kInf));
        const GradientReport report = optimizer.read_gradients();
        const StepOutcome outcome = optimizer.step(
            {.lr = lr_at(schedules[i], optimizer.steps()), .found_inf = report.found_inf});
        EXPECT_EQ(outcome, each == '.' ? StepOutcome::applied : StepOutcome::skipped);
        if (each == '.') {
          expected -= static_cast<float>(lr_at(schedules[i], applied++));
        }
        EXPECT_EQ(optimizer.steps(), applied);
        EXPECT_FLOAT_EQ(weight.item<float>(), expected);
      }
    }
  }
}

TEST(Optimizer, WithoutAnyGradientThereIsNothingToDo) {
  const Model model;
  Optimizer optimizer(model.parameters());
  const GradientReport report = optimizer.read_gradients();
  EXPECT_EQ(report.norm.item<float>(), 0);
  EXPECT_EQ(report.found_inf.item<float>(), 0);
  EXPECT_EQ(optimizer.step({.lr = 0.1}), StepOutcome::nothing_to_do);
  EXPECT_EQ(optimizer.steps(), 0);
}

TEST(Optimizer, AParameterWithoutGradientStaysAndCountsItsOwnSteps) {
  at::manual_seed(5);
  const Model model;
  Optimizer optimizer(model.parameters());
  const Tensor before = model.head.detach().clone();
  for (int step = 0; step < 3; ++step) {
    set_gradient(model.norm, at::ones({7}));
    optimizer.step({.lr = 0.1});
  }
  EXPECT_TRUE(at::equal(model.head, before));
  EXPECT_EQ(optimizer.state_dict().tensor("step.norm.weight").item<int64_t>(), 3);
  EXPECT_EQ(optimizer.state_dict().tensor("step.head").item<int64_t>(), 0);
}

// 1 + 2^-8 is not a BF16 number: adding up in BF16 would stay at 1.
TEST(Optimizer, MicrobatchesAddUpInFp32) {
  const Tensor weight = leaf(at::zeros({4}, at::kBFloat16));
  const Tensor norm = leaf(at::zeros({4}));
  Optimizer optimizer({{"weight", weight}, {"norm", norm}}, kPlainSgd);
  for (double value : {1.0, 0x1p-8}) {
    set_gradient(weight, at::full({4}, value));
    norm.mutable_grad() =
        norm.grad().defined() ? norm.grad().add(value) : at::full({4}, value, at::kFloat);
    optimizer.accumulate_();
    EXPECT_FALSE(weight.grad().defined());
  }
  EXPECT_EQ(optimizer.bytes().accumulators, 4 * 4) << "FP32 parameters add up in .grad";
  EXPECT_EQ(optimizer.bytes().gradients, 4 * 4);
  const float sum = 1 + 0x1p-8F;
  EXPECT_FLOAT_EQ(optimizer.read_gradients().norm.item<float>(), sum * std::sqrt(8.0F));
  EXPECT_EQ(optimizer.step({.lr = 1}), StepOutcome::applied);
  EXPECT_TRUE(at::equal(optimizer.master("weight"), at::full({4}, -sum)));
  EXPECT_TRUE(at::equal(norm, at::full({4}, -sum)));
  EXPECT_EQ(optimizer.bytes().accumulators, 0) << "freed by step";
}

TEST(Optimizer, ScaledFp16GradientsDoNotOverflowWhileTheyAddUp) {
  const Tensor weight = leaf(at::zeros({1}, at::kHalf));
  Optimizer optimizer({{"weight", weight}}, kPlainSgd);
  for (int microbatch = 0; microbatch < 4; ++microbatch) {
    set_gradient(weight, at::full({1}, 60000, at::kFloat));
    optimizer.accumulate_();
  }
  const GradientReport report = optimizer.read_gradients(scalar(1024));
  EXPECT_EQ(report.found_inf.item<float>(), 0);
  EXPECT_EQ(report.norm.item<float>(), 240000.0F / 1024);
}

TEST(Optimizer, ZeroGradFreesGradientsAndBuffers) {
  const Model model;
  Optimizer optimizer(model.parameters());
  model.set_random_gradients();
  EXPECT_EQ(optimizer.bytes().gradients, optimizer.bytes().weights);
  optimizer.accumulate_();
  optimizer.zero_grad();
  EXPECT_EQ(optimizer.bytes().gradients + optimizer.bytes().accumulators, 0);
  EXPECT_FALSE(model.norm.grad().defined());
}

// Scales are powers of two, so that unscaling is exact.
TEST(Optimizer, GradientsOfDifferentScalesAddUpUnscaled) {
  const Model model;
  Optimizer optimizer(model.parameters(), kPlainSgd);
  std::vector<Tensor> weights;
  std::vector<Tensor> sums;
  for (const auto& [name, value] : model.parameters()) {
    weights.push_back(optimizer.master(name).clone());
    sums.push_back(at::zeros(value.sizes()));
  }
  for (const double scale : {1024.0, 8.0}) {
    model.set_random_gradients();
    double sum_of_squares = 0;
    for (size_t i = 0; i < sums.size(); ++i) {
      const Tensor unscaled = model.parameters()[i].value.grad().to(at::kFloat).div(scale);
      sum_of_squares += unscaled.to(at::kDouble).square().sum().item<double>();
      sums[i].add_(unscaled);
    }
    const GradientReport report = optimizer.accumulate_(scalar(scale));
    EXPECT_EQ(report.found_inf.item<float>(), 0);
    EXPECT_FLOAT_EQ(report.norm.item<float>(), static_cast<float>(std::sqrt(sum_of_squares)));
  }
  EXPECT_EQ(optimizer.step({.lr = 1}), StepOutcome::applied);
  for (size_t i = 0; i < sums.size(); ++i) {
    EXPECT_TRUE(at::equal(optimizer.master(model.parameters()[i].name), weights[i].sub(sums[i])));
  }
}

TEST(Optimizer, AGradientThatIsNotFiniteStaysSoInTheUnscaledSum) {
  const Tensor w = leaf(at::zeros({2}));
  Optimizer optimizer({{"w", w}}, kPlainSgd);
  for (const float gradient : {kInf, 1.0F}) {
    set_gradient(w, at::full({2}, gradient));
    const GradientReport report = optimizer.accumulate_(scalar(2));
    EXPECT_EQ(report.found_inf.item<float>(), gradient == kInf ? 1 : 0);
  }
  EXPECT_EQ(optimizer.read_gradients().found_inf.item<float>(), 1);
  optimizer.zero_grad();
  // The inverse of this scale is infinite: no gradient can be told from it.
  set_gradient(w, at::zeros({2}));
  EXPECT_EQ(optimizer.accumulate_(scalar(1e-42)).found_inf.item<float>(), 1);
  EXPECT_EQ(optimizer.read_gradients().found_inf.item<float>(), 1);
}

TEST(Optimizer, UnscaledSumsTakeNoScaleAndNothingElse) {
  const Model model;
  Optimizer optimizer(model.parameters(), kPlainSgd);
  model.set_random_gradients();
  (void)optimizer.accumulate_(scalar(2));
  const std::string has_none =
      "optimizer: a scale for gradients that accumulate_(scale) has unscaled; leave it out";
  EXPECT_EQ(message_of<InvalidArgument>([&] { (void)optimizer.read_gradients(scalar(2)); }),
            has_none);
  EXPECT_EQ(message_of<InvalidArgument>([&] { optimizer.step({.lr = 1, .scale = scalar(2)}); }),
            has_none);
  set_gradient(model.norm, at::ones({7}));
  EXPECT_EQ(message_of<InvalidArgument>([&] { (void)optimizer.read_gradients(); }),
            "optimizer: parameter \"norm.weight\" has a gradient that was not accumulated; call "
            "accumulate_(scale) after each backward");
  EXPECT_EQ(message_of<InvalidArgument>([&] { optimizer.accumulate_(); }),
            "optimizer: accumulate_() after accumulate_(scale); in one step call the one or the "
            "other");
  optimizer.zero_grad();
  model.set_random_gradients();
  optimizer.accumulate_();
  EXPECT_EQ(message_of<InvalidArgument>([&] { (void)optimizer.accumulate_(scalar(2)); }),
            "optimizer: accumulate_(scale) after accumulate_(); in one step call the one or the "
            "other");
  EXPECT_EQ(optimizer.step({.lr = 1, .scale = scalar(2)}), StepOutcome::applied);
}

TEST(Optimizer, AGradientThatWasNotAccumulatedIsNamed) {
  const Model model;
  Optimizer optimizer(model.parameters());
  model.set_random_gradients();
  optimizer.accumulate_();
  model.set_random_gradients();
  try {
    (void)optimizer.read_gradients();
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "optimizer: parameter \"weight\" has a gradient that was not accumulated; call "
                 "accumulate_() after each backward");
  }
  EXPECT_THROW(optimizer.step({.lr = 0.1}), InvalidArgument);
}

TEST(Optimizer, AutogradNoticesThatWeightsChanged) {
  for (at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const Tensor weight = leaf(at::ones({3}, dtype));
    Optimizer optimizer({{"weight", weight}}, kPlainSgd);
    const Tensor loss = weight.mul(weight).sum();
    set_gradient(weight, at::ones({3}));
    const auto version = weight._version();
    optimizer.step({.lr = 0.1});
    EXPECT_GT(weight._version(), version);
    EXPECT_THROW(loss.backward(), c10::Error) << "backward would use the changed weight";
  }
}

TEST(Optimizer, StateRoundTripsBitForBitAndTrainingGoesOnTheSame) {
  for (Kind kind : {Kind::adamw, Kind::adam, Kind::sgd}) {
    SCOPED_TRACE(to_string(kind));
    at::manual_seed(6);
    const Model model;
    OptimizerOptions options = {.kind = kind, .weight_decay = 0.03};
    (kind == Kind::sgd ? options.momentum : options.beta1) = 0.8;
    Optimizer optimizer(model.parameters(), options);
    for (int step = 0; step < 3; ++step) {
      model.set_random_gradients();
      optimizer.step({.lr = 0.02});
    }
    tensor::StateDict saved;
    const tensor::StateDict live = optimizer.state_dict();
    saved.set("kind", live.text("kind"));
    saved.set("masters", live.text("masters"));
    saved.set("moments", live.text("moments"));
    saved.set("steps", live.integer("steps"));
    for (const auto& [name, tensor] : live.tensors()) {
      saved.set(name, tensor.clone());
    }

    at::manual_seed(7);
    const Model resumed;
    Optimizer other(resumed.parameters(), options);
    resumed.norm.detach().copy_(model.norm.detach());  // the model's own part of a checkpoint
    other.load_state_dict(saved);
    EXPECT_EQ(other.steps(), 3);
    EXPECT_TRUE(at::equal(resumed.weight, model.weight)) << "rounded from the master";
    for (uint64_t seed : {8, 9}) {
      for (const auto& [m, o] : {std::pair{&model, &optimizer}, {&resumed, &other}}) {
        at::manual_seed(seed);
        m->set_random_gradients();
        o->step({.lr = 0.02});
      }
    }
    const std::vector<Tensor> expected = snapshot(model, optimizer);
    const std::vector<Tensor> actual = snapshot(resumed, other);
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(at::equal(actual[i], expected[i])) << i;
    }
  }
}

std::string load_failure(Optimizer& optimizer, const tensor::StateDict& state) {
  try {
    optimizer.load_state_dict(state);
  } catch (const Corruption& error) {
    return error.what();
  }
  return "";
}

TEST(Optimizer, AStateThatDoesNotFitIsRefusedByNameAndChangesNothing) {
  at::manual_seed(10);
  const Model model;
  Optimizer optimizer(model.parameters());
  const std::vector<Tensor> before = snapshot(model, optimizer);

  Optimizer sgd(model.parameters(), {.kind = Kind::sgd});
  EXPECT_EQ(load_failure(optimizer, sgd.state_dict()),
            "optimizer: the state is of \"sgd\", this optimizer is \"adamw\"; resume with the kind "
            "that was saved");
  const Optimizer smaller({{"norm.weight", model.norm}, {"weight", model.weight}});
  EXPECT_EQ(load_failure(optimizer, smaller.state_dict()),
            "optimizer: the state lacks \"exp_avg.head\", \"exp_avg_sq.head\", \"master.head\" and "
            "1 more; resume with the model and the settings that were saved");
  const Optimizer larger({{"norm.weight", model.norm},
                          {"weight", model.weight},
                          {"head", model.head},
                          {"extra", leaf(at::zeros({1}))}});
  EXPECT_EQ(
      load_failure(optimizer, larger.state_dict()),
      "optimizer: the state also has \"exp_avg.extra\", \"exp_avg_sq.extra\", \"step.extra\"; "
      "resume with the model and the settings that were saved");

  // Moments that a framework has cast to the parameter's dtype are not cast back.
  tensor::StateDict cast;
  cast.set("kind", std::string("adamw"));
  cast.set("masters", std::string("fp32"));
  cast.set("moments", std::string("fp32"));
  cast.set("steps", int64_t{3});
  const tensor::StateDict own = optimizer.state_dict();
  for (const auto& [name, tensor] : own.tensors()) {
    cast.set(name, name == "exp_avg.weight" ? tensor.to(at::kBFloat16) : tensor.add(1));
  }
  EXPECT_EQ(load_failure(optimizer, cast),
            "optimizer: \"exp_avg.weight\" in the state is BFloat16 of shape [5, 3], here it is "
            "Float of shape [5, 3]; resume with the model and the settings that were saved");
  EXPECT_EQ(optimizer.steps(), 0);
  const std::vector<Tensor> after = snapshot(model, optimizer);
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_TRUE(at::equal(before[i], after[i])) << i;
  }
}

// The same for every entry that a framework may cast, and to whatever it casts it.
TEST(Optimizer, AStateInAnotherFormatIsNeverCast) {
  for (const auto& [kind, masters, moments] : every_setup()) {
    SCOPED_TRACE(::testing::Message()
                 << to_string(kind) << " " << to_string(masters) << " " << to_string(moments));
    const Tensor w = leaf(at::full({300}, 0.5, at::kBFloat16));
    Optimizer optimizer({{"w", w}}, {.kind = kind, .masters = masters, .moments = moments});
    set_gradient(w, at::ones({300}));
    optimizer.step({.lr = 0.25});
    const tensor::StateDict own = optimizer.state_dict();
    const Tensor master = optimizer.master("w").clone();
    for (const auto& entry : own.tensors()) {
      for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf, at::kFloat, at::kDouble}) {
        const at::ScalarType saved = entry.second.scalar_type();
        if (dtype == saved) {
          continue;
        }
        tensor::StateDict cast;
        for (const auto& [name, scalar] : own.scalars()) {
          std::visit([&, key = name](const auto& value) { cast.set(key, value); }, scalar);
        }
        for (const auto& [name, tensor] : own.tensors()) {
          cast.set(name, name == entry.first ? tensor.to(dtype) : tensor.clone());
        }
        EXPECT_NE(load_failure(optimizer, cast), "") << entry.first << " to " << dtype;
        EXPECT_TRUE(at::equal(optimizer.master("w"), master));
        EXPECT_EQ(own.tensor(entry.first).scalar_type(), saved);
      }
    }
  }
}

TEST(Optimizer, StateIsNotTakenWhileGradientsAccumulate) {
  const Model model;
  Optimizer optimizer(model.parameters());
  model.set_random_gradients();
  optimizer.accumulate_();
  try {
    (void)optimizer.state_dict();
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "optimizer: state_dict was called while gradients accumulate; call it after "
                 "step()");
  }
}

std::string construction_failure(const tensor::ParameterList& parameters) {
  try {
    const Optimizer optimizer(parameters);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

TEST(Optimizer, BadParametersAreNamed) {
  const Tensor one = at::ones({1});
  EXPECT_EQ(construction_failure({{"a", one}, {"a", at::ones({1})}}),
            "optimizer: parameter \"a\" is listed twice; list it once");
  EXPECT_EQ(construction_failure({{"a", one}, {"", at::ones({1})}}),
            "optimizer: parameter number 1 has an empty name; give it one");
  EXPECT_EQ(construction_failure({{"a", one}, {"b", one}}),
            "optimizer: parameter \"b\" is a tensor that an earlier name has too; list a tied "
            "weight once");
  const Tensor trained = leaf(at::ones({1}));
  EXPECT_EQ(construction_failure({{"a", trained}, {"b", trained.mul(2)}}),
            "optimizer: parameter \"b\" is the result of a recorded operation, which gets no "
            "gradient of its own; pass a leaf, made with detach() and requires_grad_()");
  EXPECT_EQ(construction_failure({{"a", one}, {"b", at::ones({1})}}),
            "optimizer: none of the 2 parameters requires a gradient; call requires_grad_() on "
            "those to train");
  EXPECT_EQ(construction_failure({{"a", one}, {"b", trained}}), "") << "a may be frozen";
  EXPECT_EQ(construction_failure({{"a", at::ones({1}, at::kDouble)}}),
            "optimizer: parameter \"a\" is Double; valid: Float BFloat16 Half");
  EXPECT_EQ(construction_failure({{"a", one.expand({3})}}),
            "optimizer: parameter \"a\" has strides [0], which overlap or leave gaps; make it "
            "contiguous");
}

TEST(Optimizer, ParametersThatOverlapAreRefused) {
  const Tensor flat = at::zeros({8});
  const auto part = [&](int64_t begin, int64_t size) {
    return flat.narrow(0, begin, size).requires_grad_();
  };
  EXPECT_EQ(construction_failure({{"b", part(4, 4)}, {"a", part(0, 4)}}), "") << "one buffer";
  const std::string refusal =
      "optimizer: parameters \"a\" and \"b\" overlap in memory; give each its own, or list one of "
      "them";
  EXPECT_EQ(construction_failure({{"a", part(0, 4)}, {"b", part(0, 4)}}), refusal);
  EXPECT_EQ(construction_failure({{"a", part(0, 5)}, {"b", part(4, 4)}}), refusal);
  EXPECT_EQ(construction_failure({{"a", part(4, 4)}, {"b", part(0, 5)}}), refusal);
  EXPECT_EQ(construction_failure({{"a", part(0, 8)}, {"b", part(2, 2)}}), refusal);
  EXPECT_EQ(construction_failure({{"a", part(0, 0)}, {"b", part(0, 8)}}), "");
}

TEST(Optimizer, BadRatesAndUnknownNamesAreErrors) {
  const Model model;
  Optimizer optimizer(model.parameters());
  for (double lr : {-0.1, std::nan(""), HUGE_VAL}) {
    EXPECT_THROW(optimizer.step({.lr = lr}), InvalidArgument) << lr;
  }
  try {
    (void)optimizer.master("hed");
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "optimizer: no parameter \"hed\"; did you mean \"head\"?");
  }
  try {
    optimizer.step({.lr = -1});
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "optimizer: lr is -1; it must be finite and not negative");
  }
}

TEST(Kind, NamesRoundTripAndASlipIsCorrected) {
  for (Kind kind : {Kind::adamw, Kind::adam, Kind::sgd}) {
    EXPECT_EQ(parse_kind(to_string(kind)), kind);
  }
  EXPECT_EQ(message_of<InvalidArgument>([] { (void)parse_kind("adamv"); }),
            "optimizer: unknown kind \"adamv\"; did you mean \"adamw\"?");
}

TEST(MomentFormat, NamesRoundTripAndASlipIsCorrected) {
  for (MomentFormat format : {MomentFormat::fp32, MomentFormat::bf16, MomentFormat::blockwise8}) {
    EXPECT_EQ(parse_moment_format(to_string(format)), format);
  }
  EXPECT_EQ(message_of<InvalidArgument>([] { (void)parse_moment_format("blockwise"); }),
            "optimizer: unknown format of moments \"blockwise\"; did you mean \"blockwise8\"?");
}

// --- Calls that do not fit together ---

TEST(Optimizer, AStepHasTheScaleOfTheReadingBeforeIt) {
  const at::Tensor weight = at::ones({2}).requires_grad_();
  Optimizer optimizer({{"weight", weight}}, {.kind = Kind::sgd});
  const at::Tensor scale = at::full({}, 4.0F);
  const auto refusal = [&](const StepOptions& options, bool scaled = true) {
    weight.mutable_grad() = at::ones({2});
    const GradientReport report = optimizer.read_gradients(scaled ? scale : at::Tensor());
    StepOptions with = options;
    with.found_inf = report.found_inf;
    return message_of<InvalidArgument>([&] { optimizer.step(with); });
  };
  EXPECT_EQ(refusal({.lr = 0.1}),
            "optimizer: read_gradients had a scale and the step has none; give both the same one");
  EXPECT_EQ(refusal({.lr = 0.1, .scale = scale}, false),
            "optimizer: the step has a scale and read_gradients had none; give both the same one");
  EXPECT_EQ(refusal({.lr = 0.1, .scale = at::full({}, 8.0F)}),
            "optimizer: read_gradients had scale 4 and the step has 8; give both the same one");
  const GradientReport report = optimizer.read_gradients(scale);
  EXPECT_THAT(message_of<InvalidArgument>([&] { optimizer.step({.lr = 0.1, .scale = scale}); }),
              HasSubstr("a step without found_inf after read_gradients(scale)"));
  scale.fill_(8);
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              optimizer.step({.lr = 0.1, .scale = scale, .found_inf = report.found_inf});
            }),
            "optimizer: the scale was changed between read_gradients and the step; update the "
            "scaler after the step");
  EXPECT_TRUE(at::equal(weight, at::ones({2})));
  optimizer.zero_grad();  // forgets the reading
  weight.mutable_grad() = at::ones({2});
  EXPECT_EQ(optimizer.step({.lr = 0.1}), StepOutcome::applied);
}

TEST(Optimizer, AStepNeedsALearningRate) {
  const at::Tensor weight = at::ones({2}).requires_grad_();
  Optimizer optimizer({{"weight", weight}});
  weight.mutable_grad() = at::ones({2});
  EXPECT_EQ(message_of<InvalidArgument>([&] { optimizer.step({}); }),
            "optimizer: lr is nan; it must be finite and not negative");
  EXPECT_EQ(optimizer.step({.lr = 0}), StepOutcome::applied);
}

TEST(Optimizer, OneThatWasMovedFromSaysSo) {
  const at::Tensor weight = at::ones({2}).requires_grad_();
  Optimizer optimizer({{"weight", weight}});
  const Optimizer moved(std::move(optimizer));
  EXPECT_EQ(moved.steps(), 0);
  // NOLINTNEXTLINE(bugprone-use-after-move)
  for (const auto& call : {std::function<void()>([&] { optimizer.step({.lr = 0.1}); }),
                           std::function<void()>([&] { (void)optimizer.read_gradients(); }),
                           std::function<void()>([&] { (void)optimizer.steps(); }),
                           std::function<void()>([&] { optimizer.zero_grad(); }),
                           std::function<void()>([&] { (void)optimizer.state_dict(); }),
                           std::function<void()>([&] { optimizer.accumulate_(); })}) {
    EXPECT_EQ(message_of<InvalidArgument>(call),
              "optimizer: was moved from; use the one that it was moved to");
  }
}

}  // namespace
}  // namespace mantissa::optim
