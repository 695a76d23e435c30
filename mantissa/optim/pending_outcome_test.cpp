#include "mantissa/optim/pending_outcome.h"

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/optim/clip.h"
#include "mantissa/optim/ema.h"
#include "mantissa/optim/optimizer.h"
#include "mantissa/optim/schedule.h"
#include "mantissa/tensor/host_reads_testing.h"
#include "mantissa/tensor/rollback.h"

namespace mantissa::optim {
namespace {

using at::Tensor;

constexpr float kInf = std::numeric_limits<float>::infinity();

Tensor scalar(double value) { return at::full({}, value, at::kFloat); }

Tensor leaf(const Tensor& value) { return value.detach().clone().requires_grad_(); }

TEST(PendingOutcome, IsKnownAtOnceOrReadFromItsTensor) {
  EXPECT_TRUE(PendingOutcome().is_known());
  EXPECT_EQ(PendingOutcome().read(), StepOutcome::nothing_to_do);
  const PendingOutcome applied = StepOutcome::applied;
  EXPECT_TRUE(applied.applied().item<bool>());
  EXPECT_FALSE(PendingOutcome(StepOutcome::skipped).applied().item<bool>());

  const PendingOutcome pending(at::full({}, false, at::TensorOptions(at::kBool)));
  EXPECT_FALSE(pending.is_known());
  EXPECT_EQ(pending.read(), StepOutcome::skipped);
  EXPECT_EQ(PendingOutcome(at::full({}, true, at::TensorOptions(at::kBool))).read(),
            StepOutcome::applied);
  EXPECT_EQ(message_of<InvalidArgument>([] { PendingOutcome(at::zeros({})); }),
            "PendingOutcome: applied is not a 0-d Bool tensor; pass one");
}

// FP32, BF16, FP16, one of other strides, one without elements; and one that is never trained.
struct Model {
  Model()
      : norm(leaf(at::randn({7}))),
        weight(leaf(at::randn({5, 3}).to(at::kBFloat16))),
        head(leaf(at::randn({3, 4}).t().to(at::kHalf))),
        none(leaf(at::empty({0}))),
        frozen(at::randn({2})) {}

  tensor::ParameterList parameters() const {
    return {{"norm.weight", norm},
            {"weight", weight},
            {"head", head},
            {"none", none},
            {"frozen", frozen}};
  }

  void set_random_gradients() const {
    for (const auto& [name, value] : parameters()) {
      if (value.requires_grad()) {
        value.mutable_grad() = at::randn(value.sizes()).mul(8).to(value.scalar_type());
      }
    }
  }

  Tensor norm;
  Tensor weight;
  Tensor head;
  Tensor none;
  Tensor frozen;
};

constexpr int kSteps = 40;
constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.95;
const Schedule kSchedule = {ScheduleKind::inverse_sqrt, 0.02, 10};
const std::set<int> kOverflows = {0, 3, 4, 17, 39};

enum class Way { fused, read_at_once, pending };

// All that a loop leaves behind, and how it got there.
struct Trained {
  std::vector<Tensor> tensors;
  std::vector<double> rates;
  std::vector<StepOutcome> outcomes;
  int64_t steps = 0;
  int64_t updates = 0;
  size_t host_reads = 0;  // of the loop, before anything was read on purpose
};

// 40 steps with overflows, a buffer that each forward pass changes, and an average of the weights.
Trained train(Kind kind, Masters masters, Way way) {
  at::manual_seed(81);
  const Model model;
  OptimizerOptions setup = {.kind = kind, .masters = masters, .fused = way == Way::fused};
  if (kind == Kind::sgd) {
    setup.momentum = 0.7;
  } else {
    setup.beta1 = kBeta1;
    setup.beta2 = kBeta2;
  }
  Optimizer optimizer(model.parameters(), setup);
  Ema ema(optimizer, {.decay = 0.8, .warmup = true});
  const Tensor buffer = at::zeros({3});
  tensor::Rollback buffers({buffer});
  std::vector<PendingOutcome> outcomes;
  std::vector<Tensor> rates;
  Trained result;
  {
    const tensor::HostReads reads;
    for (int step = 0; step < kSteps; ++step) {
      const bool overflows = kOverflows.count(step) != 0;
      buffers.remember();
      buffer.add_(overflows ? kInf : 1.0F);
      model.set_random_gradients();
      if (overflows) {
        (step % 2 == 0 ? model.norm : model.head)
            .mutable_grad()
            .view({-1})
            .slice(0, 1, 2)
            .fill_(kInf);
      }
      const Tensor scale = scalar(std::exp2(step % 5));
      const GradientReport report = optimizer.read_gradients(scale);
      const LearningRate lr = way == Way::pending
                                  ? LearningRate(lr_at(kSchedule, optimizer.applied_steps()))
                                  : LearningRate(lr_at(kSchedule, optimizer.steps()));
      rates.push_back(lr.on_device().defined() ? lr.on_device()
                                               : at::full({}, lr.value(), at::kDouble));
      const StepOptions options = {.lr = lr,
                                   .scale = scale,
                                   .clip_factor = clip_factor(report.norm, 2.0),
                                   .found_inf = report.found_inf};
      if (way == Way::pending) {
        outcomes.push_back(optimizer.enqueue_step(options));
      } else {
        outcomes.emplace_back(optimizer.step(options));
      }
      ema.update(optimizer, outcomes.back());
      buffers.undo_if(report.found_inf);
      optimizer.zero_grad();
    }
    result.host_reads = tensor::HostReads::names().size();
  }
  for (const PendingOutcome& outcome : outcomes) {
    result.outcomes.push_back(outcome.read());
  }
  for (const Tensor& rate : rates) {
    result.rates.push_back(rate.item<double>());
  }
  result.steps = optimizer.steps();
  result.updates = ema.updates();
  result.tensors = {buffer};
  for (const auto& [name, value] : model.parameters()) {
    result.tensors.push_back(value.detach());
    result.tensors.push_back(ema.shadow(name));
  }
  const tensor::StateDict state = optimizer.state_dict();
  for (const auto& [name, tensor] : state.tensors()) {
    result.tensors.push_back(tensor);
  }
  return result;
}

void expect_same(const Trained& a, const Trained& b) {
  EXPECT_EQ(a.outcomes, b.outcomes);
  ASSERT_EQ(a.rates.size(), b.rates.size());
  for (size_t i = 0; i < a.rates.size(); ++i) {
    EXPECT_NEAR(a.rates[i], b.rates[i], b.rates[i] * 0x1p-50)
        << i;  // the error of a root: Schedule.*
  }
  EXPECT_EQ(a.steps, b.steps);
  EXPECT_EQ(a.updates, b.updates);
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    EXPECT_TRUE(at::equal(a.tensors[i], b.tensors[i])) << i;
  }
}

// See AdamwComposed in mantissa/ops/composed/updates_test.cpp: with constants that round alike all
// else is the same, operation by operation.
TEST(PendingOutcome, ALoopThatReadsNothingTrainsBitForBitAsOneThatWaitsAndAsTheFusedOne) {
  for (int64_t n = 0; n < kSteps; ++n) {
    const auto step = static_cast<double>(n + 1);
    const double lr = lr_at(kSchedule, n);
    for (const double constant :
         {lr, lr * OptimizerOptions().weight_decay, lr / (1 - std::pow(kBeta1, step)),
          1 / std::sqrt(1 - std::pow(kBeta2, step))}) {
      EXPECT_EQ(static_cast<float>(constant * (1 - 0x1p-40)),
                static_cast<float>(constant * (1 + 0x1p-40)));
    }
  }
  for (const auto& [kind, masters] : {std::pair{Kind::adamw, Masters::fp32},
                                      {Kind::adam, Masters::compensated},
                                      {Kind::sgd, Masters::none}}) {
    SCOPED_TRACE(testing::Message() << to_string(kind) << " " << to_string(masters));
    const Trained pending = train(kind, masters, Way::pending);
    EXPECT_EQ(pending.host_reads, 0U);
    EXPECT_EQ(pending.steps, kSteps - static_cast<int64_t>(kOverflows.size()));
    EXPECT_EQ(pending.updates, pending.steps);
    for (int step = 0; step < kSteps; ++step) {
      EXPECT_EQ(pending.outcomes[static_cast<size_t>(step)],
                kOverflows.count(step) != 0 ? StepOutcome::skipped : StepOutcome::applied);
    }
    EXPECT_EQ(pending.tensors[0].max().item<float>(), static_cast<float>(pending.steps));
    const Trained waiting = train(kind, masters, Way::read_at_once);
    EXPECT_GE(waiting.host_reads, static_cast<size_t>(kSteps));
    expect_same(pending, waiting);
    expect_same(pending, train(kind, masters, Way::fused));
  }
}

TEST(PendingOutcome, WithoutAnyGradientTheHostKnowsAtOnce) {
  const Model model;
  Optimizer optimizer(model.parameters(), {.fused = false});
  Ema ema(optimizer, {});
  const GradientReport report = optimizer.read_gradients(scalar(8));
  EXPECT_EQ(report.norm.item<float>(), 0);
  EXPECT_EQ(report.found_inf.item<float>(), 0);
  const PendingOutcome outcome =
      optimizer.enqueue_step({.lr = 0.1, .scale = scalar(8), .found_inf = report.found_inf});
  EXPECT_TRUE(outcome.is_known());
  EXPECT_EQ(outcome.read(), StepOutcome::nothing_to_do);
  ema.update(optimizer, outcome);
  EXPECT_EQ(optimizer.steps() + ema.updates(), 0);
}

TEST(PendingOutcome, OfAFusedStepIsKnownAtOnce) {
  const Model model;
  Optimizer optimizer(model.parameters());
  model.set_random_gradients();
  EXPECT_EQ(optimizer.enqueue_step({.lr = 0.1}).read(), StepOutcome::applied);
  model.set_random_gradients();
  const PendingOutcome outcome = optimizer.enqueue_step({.lr = 0.1, .found_inf = scalar(1)});
  EXPECT_TRUE(outcome.is_known());
  EXPECT_EQ(outcome.read(), StepOutcome::skipped);
}

// The answer is of its step, whatever is enqueued afterwards.
TEST(PendingOutcome, IsReadOneStepLate) {
  const Tensor w = leaf(at::ones({2}));
  Optimizer optimizer({{"w", w}}, {.fused = false});
  PendingOutcome last;
  std::vector<StepOutcome> seen;
  for (const float gradient : {1.0F, kInf, 1.0F}) {
    w.mutable_grad() = at::full({2}, gradient);
    const GradientReport report = optimizer.read_gradients();
    const PendingOutcome outcome =
        optimizer.enqueue_step({.lr = 0.1, .found_inf = report.found_inf});
    seen.push_back(last.read());
    last = outcome;
  }
  seen.push_back(last.read());
  EXPECT_EQ(seen, (std::vector<StepOutcome>{StepOutcome::nothing_to_do, StepOutcome::applied,
                                            StepOutcome::skipped, StepOutcome::applied}));
}

TEST(OptimizerComposed, TwoOptimizersAreSkippedEachOnItsOwn) {
  const Tensor a = leaf(at::ones({2}));
  const Tensor b = leaf(at::ones({2}));
  const OptimizerOptions options = {
      .kind = Kind::sgd, .weight_decay = 0, .momentum = 0, .fused = false};
  Optimizer first({{"a", a}}, options);
  Optimizer second({{"b", b}}, options);
  a.mutable_grad() = at::full({2}, kInf);
  b.mutable_grad() = at::full({2}, 4.0F);
  const Tensor scale = scalar(4);
  const GradientReport of_first = first.read_gradients(scale);
  const GradientReport of_second = second.read_gradients(scale);
  const PendingOutcome one =
      first.enqueue_step({.lr = 1, .scale = scale, .found_inf = of_first.found_inf});
  const PendingOutcome two =
      second.enqueue_step({.lr = 1, .scale = scale, .found_inf = of_second.found_inf});
  EXPECT_EQ(one.read(), StepOutcome::skipped);
  EXPECT_EQ(two.read(), StepOutcome::applied);
  EXPECT_TRUE(at::equal(a, at::ones({2})));
  EXPECT_TRUE(at::equal(b, at::zeros({2})));
}

tensor::StateDict cloned(const tensor::StateDict& state) {
  tensor::StateDict result;
  for (const auto& [name, tensor] : state.tensors()) {
    result.set(name, tensor.clone());
  }
  for (const auto& [name, value] : state.scalars()) {
    std::visit([&, key = name](const auto& each) { result.set(key, each); }, value);
  }
  return result;
}

TEST(OptimizerComposed, AStateGoesToAFusedOptimizerAndBack) {
  for (const Masters masters : {Masters::fp32, Masters::compensated, Masters::none}) {
    at::manual_seed(82);
    const Model model;
    Optimizer composed(model.parameters(), {.masters = masters, .fused = false});
    for (int step = 0; step < 3; ++step) {
      model.set_random_gradients();
      (void)composed.enqueue_step({.lr = 0.02});
    }
    const tensor::StateDict saved = cloned(composed.state_dict());
    Optimizer fused(model.parameters(), {.masters = masters});
    fused.load_state_dict(saved);
    EXPECT_EQ(fused.steps(), 3);
    Optimizer back(model.parameters(), {.masters = masters, .fused = false});
    back.load_state_dict(fused.state_dict());
    EXPECT_EQ(back.steps(), 3);
    const tensor::StateDict loaded = back.state_dict();
    EXPECT_EQ(loaded.scalars(), saved.scalars());
    ASSERT_EQ(loaded.tensors().size(), saved.tensors().size());
    for (const auto& [name, tensor] : saved.tensors()) {
      EXPECT_TRUE(at::equal(loaded.tensor(name), tensor)) << name;
    }
  }
}

TEST(OptimizerComposed, MicrobatchesAddUpAsInTheFusedOne) {
  std::vector<Tensor> results;
  for (const bool fused : {true, false}) {
    at::manual_seed(83);
    const Model model;
    Optimizer optimizer(model.parameters(), {.kind = Kind::sgd, .fused = fused});
    for (int step = 0; step < 2; ++step) {
      for (const double scale : {8.0, 2.0}) {
        model.set_random_gradients();
        const GradientReport report = optimizer.accumulate_(scalar(scale));
        EXPECT_EQ(report.found_inf.item<float>(), 0);
      }
      (void)optimizer.enqueue_step({.lr = 0.01});
      model.set_random_gradients();
      optimizer.accumulate_();
      model.norm.mutable_grad() = at::ones({7});
      model.weight.mutable_grad() = at::sparse_coo_tensor(at::zeros({1, 2}, at::kLong),
                                                          at::ones({2, 3}, at::kBFloat16), {5, 3});
      optimizer.accumulate_();
      (void)optimizer.enqueue_step({.lr = 0.01, .scale = scalar(4)});
    }
    results.push_back(model.norm.detach());
    results.push_back(optimizer.master("weight"));
    results.push_back(optimizer.master("head"));
  }
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(at::equal(results[i], results[i + 3])) << i;
  }
}

TEST(OptimizerComposed, LostUpdatesAreThoseOfTheFusedOne) {
  for (const bool fused : {true, false}) {
    const Tensor w = leaf(at::ones({10}, at::kBFloat16));
    Optimizer optimizer({{"w", w}}, {.kind = Kind::sgd,
                                     .weight_decay = 0,
                                     .momentum = 0,
                                     .masters = Masters::none,
                                     .fused = fused});
    for (int step = 0; step < 2; ++step) {
      w.mutable_grad() = at::ones({10}, at::kBFloat16);
      w.mutable_grad().slice(0, 0, 3).zero_();
      optimizer.step({.lr = 1e-3});
      ASSERT_EQ(optimizer.lost_updates().size(), 1U) << fused;
      EXPECT_EQ(optimizer.lost_updates()[0].share, 0.7);
    }
  }
}

TEST(OptimizerComposed, SettingsThatOnlyFusedPassesKnowAreRefused) {
  const Tensor w = leaf(at::ones({4}, at::kBFloat16));
  EXPECT_EQ(message_of<Unsupported>([&] {
              Optimizer({{"w", w}}, {.masters = Masters::stochastic, .fused = false});
            }),
            "optimizer: masters is stochastic, which only the fused passes do; use fp32, "
            "split, compensated or none");
  EXPECT_EQ(message_of<Unsupported>([&] {
              Optimizer({{"w", w}}, {.moments = MomentFormat::bf16, .fused = false});
            }),
            "optimizer: moments is bf16, which only the fused passes do; use fp32");
}

TEST(OptimizerComposed, ARateOnTheDeviceIsTakenByBothAndChecked) {
  for (const bool fused : {true, false}) {
    const Tensor w = leaf(at::zeros({1}));
    Optimizer optimizer({{"w", w}},
                        {.kind = Kind::sgd, .weight_decay = 0, .momentum = 0, .fused = fused});
    w.mutable_grad() = at::ones({1});
    optimizer.step({.lr = at::full({}, 0.25, at::kDouble)});
    optimizer.step({.lr = scalar(0.25)});
    EXPECT_EQ(w.item<float>(), -0.5F);
    EXPECT_EQ(message_of<InvalidArgument>([&] { optimizer.step({.lr = at::ones({1})}); }),
              "optimizer: lr is Float of shape [1] on cpu; pass a number or a 0-d Float or Double "
              "tensor on cpu");
    EXPECT_EQ(message_of<InvalidArgument>([&] { optimizer.step({.lr = Tensor()}); }),
              "optimizer: lr is an undefined tensor; pass a number, or what lr_at() returns");
    EXPECT_EQ(message_of<InvalidArgument>(
                  [&] { optimizer.step({.lr = 1, .scale = at::ones({}, at::kDouble)}); }),
              std::string(fused ? "sgd_" : "sgd_composed_") +
                  ": scale is Double of shape []; pass a 0-d Float tensor");
  }
}

// Operations for tensors without data that LibTorch has in Python only: no more than shapes.
Tensor& meta_unary_out(const Tensor& self, Tensor& out) {
  out.resize_(self.sizes());
  return out;
}

Tensor& meta_logical_and_out(const Tensor& self, const Tensor& other, Tensor& out) {
  out.resize_(self.add(other).sizes());
  return out;
}

Tensor meta_isnan(const Tensor& self) { return self.ne(self); }

Tensor meta_where(const Tensor& condition, const Tensor& self, const Tensor& other) {
  return condition.to(self.scalar_type()).add(self).add(other);
}

Tensor& meta_where_out(const Tensor& condition, const Tensor& self, const Tensor& other,
                       Tensor& out) {
  EXPECT_EQ(meta_where(condition, self, other).sizes(), out.sizes());
  return out;
}

void register_meta_kernels() {
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::Meta, __FILE__,
                                __LINE__);
  library.impl("abs.out", TORCH_FN(meta_unary_out));
  library.impl("logical_not.out", TORCH_FN(meta_unary_out));
  library.impl("logical_and.out", TORCH_FN(meta_logical_and_out));
  library.impl("isnan", TORCH_FN(meta_isnan));
  library.impl("where.self", TORCH_FN(meta_where));
  library.impl("where.self_out", TORCH_FN(meta_where_out));
}

// Tensors without data: whatever would look at a value, or be on the CPU by mistake, throws.
TEST(OptimizerComposed, NeedsNoValueAndNothingOfTheCpu) {
  register_meta_kernels();
  const auto meta = at::TensorOptions(at::kMeta);
  const Tensor norm = at::ones({7}, meta.dtype(at::kFloat)).requires_grad_();
  const Tensor weight = at::ones({5, 3}, meta.dtype(at::kBFloat16)).requires_grad_();
  for (const Kind kind : {Kind::adamw, Kind::sgd}) {
    for (const Masters masters : {Masters::fp32, Masters::split, Masters::none}) {
      Optimizer optimizer({{"norm", norm}, {"weight", weight}}, {.kind = kind, .masters = masters});
      EXPECT_FALSE(optimizer.is_fused());
      Ema ema(optimizer, {.warmup = true});
      norm.mutable_grad() = at::ones({7}, meta.dtype(at::kFloat));
      weight.mutable_grad() = at::ones({5, 3}, meta.dtype(at::kBFloat16));
      const Tensor scale = at::ones({}, meta.dtype(at::kFloat));
      const GradientReport report = optimizer.read_gradients(scale);
      const PendingOutcome outcome =
          optimizer.enqueue_step({.lr = lr_at(kSchedule, optimizer.applied_steps()),
                                  .scale = scale,
                                  .clip_factor = clip_factor(report.norm, 1.0),
                                  .found_inf = report.found_inf});
      ema.update(optimizer, outcome);
      EXPECT_TRUE(outcome.applied().is_meta());
      EXPECT_FALSE(outcome.is_known());
      EXPECT_THROW((void)outcome.read(), c10::Error);
    }
  }
  const Tensor here = leaf(at::ones({2}));
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              Optimizer({{"a", here}, {"b", norm}});
            }),
            "optimizer: parameter \"b\" is on meta and \"a\" on cpu; give each device an optimizer "
            "of its own");
}

}  // namespace
}  // namespace mantissa::optim
