#include "mantissa/amp/loss_scaler.h"

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros_like.h>
#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mantissa/amp/scale_tensors.h"
#include "mantissa/base/error.h"

namespace mantissa::amp {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// One step whose gradients are finite or not; the scale after it.
float step(LossScaler& scaler, bool finite) {
  std::vector<at::Tensor> grads = {at::ones({3}), at::full({2}, finite ? 1.0F : kInf)};
  scaler.update(scaler.unscale_(grads));
  return scaler.value().item<float>();
}

// The scale after each step of a history: did its gradients stay finite?
std::vector<float> history(LossScaler& scaler, const std::vector<bool>& finite) {
  std::vector<float> scales;
  scales.reserve(finite.size());
  for (bool ok : finite) {
    scales.push_back(step(scaler, ok));
  }
  return scales;
}

float scale_after(const LossScalerOptions& options, const std::vector<bool>& finite) {
  LossScaler scaler(at::kCPU, options);
  return history(scaler, finite).back();
}

std::string refusal(const LossScalerOptions& options) {
  try {
    const LossScaler scaler(at::kCPU, options);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

tensor::StateDict state(const std::string& kind, const at::Tensor& scale, int32_t tracker) {
  tensor::StateDict result;
  result.set("kind", kind);
  result.set("scale", scale);
  result.set("growth_tracker", at::scalar_tensor(tracker, at::kInt));
  result.set("overflows_left", at::scalar_tensor(1, at::kInt));
  result.set("settled", at::scalar_tensor(0, at::kFloat));
  result.set("skipped", at::scalar_tensor(3, at::kLong));
  result.set("skipped_in_row", at::scalar_tensor(1, at::kLong));
  return result;
}

tensor::StateDict state(float scale, int32_t tracker) {
  return state("dynamic", at::scalar_tensor(scale, at::kFloat), tracker);
}

std::string load_refusal(LossScaler& scaler, const tensor::StateDict& bad) {
  try {
    scaler.load_state_dict(bad);
  } catch (const Corruption& error) {
    return error.what();
  }
  return "accepted";
}

TEST(LossScaler, GrowsAfterAFullFiniteIntervalOnly) {
  const LossScalerOptions options{.initial = 8, .growth_interval = 3};
  EXPECT_EQ(scale_after(options, {true, true}), 8);
  EXPECT_EQ(scale_after(options, {true, true, true}), 16);
}

TEST(LossScaler, BacksOffAtOnceAndRestartsTheInterval) {
  const LossScalerOptions options{.initial = 8, .growth_interval = 3};
  EXPECT_EQ(scale_after(options, {true, true, false}), 4);
  EXPECT_EQ(scale_after(options, {true, true, false, true, true}), 4);
}

// The rule of torch's GradScaler, written out: backoff and restart on inf; else count, and at the
// interval grow if the result is finite, and restart.
TEST(LossScaler, HistoryOfTheScaleIsThatOfTorch) {
  const LossScalerOptions options{
      .initial = 0x1p125, .growth = 4, .backoff = 0.25, .growth_interval = 2};
  float scale = options.initial;
  int tracker = 0;
  std::vector<bool> finite;
  std::vector<float> expected;
  for (int i = 0; i < 200; ++i) {
    const bool ok = i % 7 != 3 && i % 11 != 5;
    finite.push_back(ok);
    if (!ok) {
      scale *= options.backoff;
      tracker = 0;
    } else if (++tracker == options.growth_interval) {
      scale = std::isfinite(scale * options.growth) ? scale * options.growth : scale;
      tracker = 0;
    }
    expected.push_back(scale);
  }
  LossScaler scaler(at::kCPU, options);
  EXPECT_EQ(history(scaler, finite), expected);
}

TEST(LossScaler, NeverFallsBelowTheFloor) {
  EXPECT_EQ(scale_after({.initial = 4, .floor = 2}, {false, false, false}), 2);
  EXPECT_EQ(scale_after({}, std::vector<bool>(200, false)), 1);
}

TEST(LossScaler, AFloorBelowOneAllowsScalesBelowOne) {
  EXPECT_EQ(scale_after({.initial = 1, .floor = 0x1p-14F}, std::vector<bool>(40, false)), 0x1p-14F);
}

TEST(LossScaler, NeverRisesAboveTheCeiling) {
  const LossScalerOptions options{.initial = 8, .ceiling = 24.0F, .growth_interval = 1};
  EXPECT_EQ(scale_after(options, {true, true, true}), 24);
}

TEST(LossScaler, StaysFiniteWithoutACeiling) {
  const LossScalerOptions options{.initial = 0x1p120F, .growth_interval = 1};
  EXPECT_EQ(scale_after(options, std::vector<bool>(12, true)), 0x1p127F);
}

TEST(LossScaler, NoHistoryTakesTheScaleOutOfRange) {
  std::vector<LossScalerOptions> cases = {
      {.initial = 0x1p127F, .growth = 2, .growth_interval = 1},
      {.initial = std::numeric_limits<float>::max(), .growth = 1.5F, .growth_interval = 1},
      {.initial = 1, .growth = 3e38F, .backoff = 1e-38F, .growth_interval = 1},
      {.initial = 1,
       .backoff = 1e-30F,
       .floor = std::numeric_limits<float>::min(),
       .growth_interval = 1,
       .hysteresis = 2},
      {.initial = 0x1p100F, .ceiling = 0x1p127F, .growth_interval = 1, .regrowth_interval = 1}};
  for (const std::string_view preset : scale_preset_names()) {
    cases.push_back(scale_preset(preset));
    cases.back().growth_interval = 1;
  }
  for (size_t i = 0; i < cases.size(); ++i) {
    for (const std::string steps : {"........", "xxxxxxxx", ".x", "x...xx", "xx......"}) {
      LossScaler scaler(at::kCPU, cases[i]);
      for (int repeat = 0; repeat < 60; ++repeat) {
        for (const char each : steps) {
          const float scale = step(scaler, each == '.');
          ASSERT_TRUE(std::isnormal(scale) && scale > 0) << i << " " << steps << " " << scale;
          ASSERT_GE(scale, cases[i].floor) << i << " " << steps;
          ASSERT_LE(scale, cases[i].ceiling.value_or(scale)) << i << " " << steps;
        }
      }
    }
  }
}

TEST(LossScaler, StaticScaleNeverChanges) {
  LossScaler scaler(at::kCPU, {.kind = ScaleKind::static_, .initial = 1000});
  EXPECT_THAT(history(scaler, {true, false, true}), testing::Each(1000));
  EXPECT_EQ(scaler.scale(at::full({}, 3.0F)).item<float>(), 3000);
}

TEST(LossScaler, KindNoneScalesByExactlyOne) {
  LossScaler scaler(at::kCPU, {.kind = ScaleKind::none});
  const at::Tensor loss = at::randn({5});
  EXPECT_TRUE(at::equal(scaler.scale(loss), loss));
  EXPECT_THAT(history(scaler, {true, false, true}), testing::Each(1));
}

// A power-of-two scale changes exponents only, so the round trip is exact.
TEST(LossScaler, UnscaleInvertsScaleBitForBit) {
  const at::Tensor grad = at::randn({4096}).mul(0x1p-10);
  for (const float scale : {0x1p-14F, 1.0F, 1024.0F, 0x1p100F, 0x1p127F}) {
    const LossScaler scaler(at::kCPU, {.initial = scale, .floor = 0x1p-14F});
    std::vector<at::Tensor> grads = {scaler.scale(grad)};
    EXPECT_EQ(scaler.unscale_(grads).item<float>(), 0);
    EXPECT_TRUE(at::equal(grads[0], grad)) << scale;
  }
}

// Three roundings of FP32: of the product, of the reciprocal, and of the product with that.
TEST(LossScaler, UnscaleInvertsAnyScaleWithinThreeRoundings) {
  const at::Tensor grad = at::randn({4096});
  for (const float scale : {3.0F, 1000.0F, 0.1F, 65504.0F, 1.1e30F}) {
    const LossScaler scaler(at::kCPU, {.initial = scale, .floor = 0x1p-14F});
    const std::vector<at::Tensor> grads = {scaler.scale(grad)};
    EXPECT_EQ(scaler.unscale_(grads).item<float>(), 0);
    EXPECT_LE(grads[0].sub(grad).abs().sub(grad.abs(), 3.01 * 0x1p-24).max().item<float>(), 0)
        << scale;
  }
}

thread_local int fp64_tensors = 0;

void count_fp64_tensors(const at::RecordFunction& function, at::ObserverContext* /*context*/) {
  for (const c10::IValue& result : function.outputs()) {
    fp64_tensors += result.isTensor() && result.toTensor().scalar_type() == at::kDouble ? 1 : 0;
  }
}

// Some devices have no FP64. What a device would do runs here on the CPU.
TEST(LossScaler, NothingIsComputedInFp64) {
  const LossScalerOptions options = {.initial = 1000, .growth_interval = 1, .regrowth_interval = 1};
  LossScaler scaler(at::kCPU, options);
  const ScaleTensors on_device(initial_state(options), at::kCPU);
  const auto handle =
      at::addThreadLocalCallback(at::RecordFunctionCallback(nullptr, count_fp64_tensors)
                                     .needsOutputs(true)
                                     .scopes({at::RecordScope::FUNCTION}));
  fp64_tensors = 0;
  (void)at::ones({}, at::kDouble).add(1);
  EXPECT_GT(fp64_tensors, 0);  // so one would be seen
  fp64_tensors = 0;
  for (const float gradient : {1.0F, kInf}) {
    const std::vector<at::Tensor> grads = {scaler.scale(at::full({3}, gradient, at::kHalf))};
    const at::Tensor found_inf = scaler.unscale_(grads);
    scaler.update({found_inf, found_inf});
    on_device.advance(options, found_inf, at::zeros_like(found_inf));
  }
  at::removeCallback(handle);
  EXPECT_EQ(fp64_tensors, 0);
}

TEST(LossScaler, LossIsScaledInFp32WhateverItsDtypeAndShape) {
  const LossScaler scaler(at::kCPU);
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16, at::kDouble}) {
    for (const std::vector<int64_t>& sizes :
         {std::vector<int64_t>{2, 2}, {}, {0}, {1}, {2, 0, 3}}) {
      const at::Tensor scaled = scaler.scale(at::full(sizes, 2.0F, dtype));
      EXPECT_EQ(scaled.scalar_type(), at::kFloat);
      EXPECT_TRUE(at::equal(scaled, at::full(sizes, 131072.0F))) << dtype << " " << sizes.size();
    }
  }
  const at::Tensor largest = at::full({2}, 65504, at::kHalf);
  EXPECT_TRUE(at::equal(scaler.scale(largest.expand({3, 2})), at::full({3, 2}, 65504 * 65536.0F)));
}

TEST(LossScaler, GradientFlowsThroughScale) {
  const LossScaler scaler(at::kCPU, {.initial = 8});
  const at::Tensor loss = at::ones({}, at::kHalf).requires_grad_();
  scaler.scale(loss).backward();
  EXPECT_EQ(loss.grad().item<float>(), 8);
}

TEST(LossScaler, FindsInfAndNanInAnyGradient) {
  const LossScaler scaler(at::kCPU);
  for (const float bad : {kInf, -kInf, kNan}) {
    EXPECT_NE(scaler.unscale_({at::ones({3}), at::full({2}, bad)}).item<float>(), 0) << bad;
  }
  EXPECT_EQ(scaler.unscale_({at::ones({3})}).item<float>(), 0);
  EXPECT_EQ(scaler.unscale_({}).item<float>(), 0);
}

TEST(LossScaler, FindsOverflowThatDividingByASmallScaleMakes) {
  const LossScaler dynamic(at::kCPU, {.initial = 0x1p-10F, .floor = 0x1p-14F});
  EXPECT_NE(dynamic.unscale_({at::full({2}, 0x1p120F)}).item<float>(), 0);
  const LossScaler fixed(at::kCPU, {.kind = ScaleKind::static_, .initial = 0x1p-10F});
  EXPECT_NE(fixed.unscale_({at::full({2}, 0x1p120F)}).item<float>(), 0);
}

TEST(LossScaler, NamesTheGradientThatIsNotFp32) {
  const LossScaler scaler(at::kCPU);
  try {
    (void)scaler.unscale_({at::ones({1}), at::ones({1}, at::kHalf)});
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "unscale_: gradient 1 is Half; pass the FP32 master gradients");
  }
}

TEST(LossScaler, NamesATensorOnAnotherDevice) {
  LossScaler scaler(at::kCPU);
  const auto meta = at::device(at::kMeta).dtype(at::kFloat);
  try {
    (void)scaler.unscale_({at::ones({1}, meta)});
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "unscale_: gradient 0 is on meta but the scale is on cpu; make the scaler on the "
                 "device of the model");
  }
  EXPECT_THROW(scaler.scale(at::ones({}, meta)), InvalidArgument);
  EXPECT_THROW(scaler.update(at::ones({}, meta)), InvalidArgument);
}

TEST(LossScaler, RefusesWhatIsNoLossAndWhatIsNoFoundInf) {
  LossScaler scaler(at::kCPU);
  try {
    (void)scaler.scale(at::ones({}, at::kLong));
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "scale: the loss is Long; pass a floating-point loss");
  }
  try {
    scaler.update(at::ones({2}));
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "update: found_inf is Float of shape [2]; pass what unscale_ returned");
  }
}

TEST(LossScaler, RefusesAScaleThatIsNotPositiveFiniteAndNormal) {
  EXPECT_EQ(refusal({.initial = 0}),
            "loss scaler: initial is 0; valid: a finite normal FP32 number above 0");
  for (const float bad : {-1.0F, 1e-42F, kInf, kNan}) {
    EXPECT_NE(refusal({.initial = bad}), "accepted") << bad;
    EXPECT_NE(refusal({.kind = ScaleKind::static_, .initial = bad}), "accepted") << bad;
    EXPECT_NE(refusal({.floor = bad}), "accepted") << bad;
    EXPECT_NE(refusal({.ceiling = bad}), "accepted") << bad;
  }
  EXPECT_THAT(refusal({.floor = 1e-42F}), testing::StartsWith("loss scaler: floor is "));
}

TEST(LossScaler, RefusesFactorsAndIntervalsOutOfRange) {
  EXPECT_EQ(refusal({.growth = 1}), "loss scaler: growth is 1; valid: finite, above 1");
  EXPECT_NE(refusal({.growth = kNan}), "accepted");
  EXPECT_NE(refusal({.growth = kInf}), "accepted");
  EXPECT_EQ(refusal({.backoff = 1}), "loss scaler: backoff is 1; valid: above 0, below 1");
  EXPECT_NE(refusal({.backoff = 0}), "accepted");
  EXPECT_NE(refusal({.backoff = -1}), "accepted");
  EXPECT_NE(refusal({.backoff = kNan}), "accepted");
  EXPECT_EQ(refusal({.growth_interval = 0}),
            "loss scaler: growth_interval is 0; valid: 1 or more steps");
  EXPECT_NE(refusal({.growth_interval = -5}), "accepted");
}

TEST(LossScaler, RefusesAnInitialScaleOutsideFloorAndCeiling) {
  EXPECT_EQ(refusal({.initial = 1, .floor = 2}),
            "loss scaler: floor is 2; valid: at most initial, which is 1");
  EXPECT_EQ(refusal({.initial = 8, .ceiling = 4.0F}),
            "loss scaler: ceiling is 4; valid: at least initial, which is 8");
}

TEST(LossScaler, RefusesOptionsWithoutAnEffect) {
  EXPECT_EQ(refusal({.kind = ScaleKind::none, .initial = 8}),
            "loss scaler: initial is set but has no effect with kind none; leave it out, or use "
            "kind static");
  EXPECT_EQ(refusal({.kind = ScaleKind::static_, .growth = 4}),
            "loss scaler: growth is set but has no effect with kind static; leave it out, or use "
            "kind dynamic");
  EXPECT_NE(refusal({.kind = ScaleKind::static_, .backoff = 0.25F}), "accepted");
  EXPECT_NE(refusal({.kind = ScaleKind::static_, .floor = 2}), "accepted");
  EXPECT_NE(refusal({.kind = ScaleKind::none, .ceiling = 2.0F}), "accepted");
  EXPECT_NE(refusal({.kind = ScaleKind::none, .growth_interval = 2}), "accepted");
}

TEST(LossScaler, CountsSkippedSteps) {
  for (const LossScalerOptions& options :
       {LossScalerOptions{}, LossScalerOptions{.kind = ScaleKind::static_, .initial = 8},
        LossScalerOptions{.kind = ScaleKind::none}}) {
    LossScaler scaler(at::kCPU, options);
    history(scaler, {false, true, false, false});
    EXPECT_EQ(scaler.skipped().item<int64_t>(), 3);
    EXPECT_EQ(scaler.skipped_in_row().item<int64_t>(), 2);
  }
}

TEST(LossScaler, KindsRoundTripAsText) {
  for (const ScaleKind kind : {ScaleKind::none, ScaleKind::static_, ScaleKind::dynamic}) {
    EXPECT_EQ(parse_scale_kind(to_string(kind)), kind);
  }
  EXPECT_EQ(to_string(ScaleKind::static_), "static");
  try {
    (void)parse_scale_kind("dynamik");
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "loss scaler: unknown kind \"dynamik\"; did you mean \"dynamic\"?");
  }
}

// Every later step equals that of the scaler which was saved, the tracker included.
TEST(LossScaler, LoadedStateContinuesTheSavedOne) {
  const LossScalerOptions options{.initial = 8, .growth = 4, .backoff = 0.25, .growth_interval = 3};
  LossScaler saved(at::kCPU, options);
  history(saved, {true, true, true, false, true, true});
  const tensor::StateDict checkpoint = saved.state_dict();
  EXPECT_EQ(checkpoint.tensor("growth_tracker").item<int>(), 2);
  LossScaler loaded(at::kCPU, options);
  loaded.load_state_dict(checkpoint);
  EXPECT_EQ(loaded.value().item<float>(), saved.value().item<float>());
  const std::vector<bool> rest = {true, true, true, true, false, true};
  EXPECT_EQ(history(loaded, rest), history(saved, rest));
}

TEST(LossScaler, ATrackerBeyondTheIntervalGrowsAtTheNextFiniteStep) {
  LossScaler scaler(at::kCPU, {.initial = 8, .growth_interval = 5});
  const int32_t largest = std::numeric_limits<int32_t>::max();
  for (const int32_t tracker : {9, 5, 4, largest - 1, largest}) {
    scaler.load_state_dict(state(8, tracker));
    EXPECT_THAT(history(scaler, {true, true}), testing::ElementsAre(16, 16)) << tracker;
  }
  // On a device.
  const LossScalerOptions options = {.initial = 8, .growth_interval = 5};
  ScaleState start = initial_state(options);
  start.growth_tracker = largest;
  const ScaleTensors tensors(start, at::kCPU);
  tensors.advance(options, at::full({}, 0.0F), at::full({}, 0.0F));
  EXPECT_EQ(tensors.read(), next_state(options, start, Overflow::none));
  EXPECT_EQ(tensors.read().scale, 16);
}

TEST(LossScaler, RefusesAStateThatNoScalerCanHave) {
  LossScaler scaler(at::kCPU, {.initial = 8, .floor = 2, .ceiling = 64.0F});
  EXPECT_EQ(load_refusal(scaler, state(0, 1)),
            "loss scaler: the state has scale 0; valid: 2 to 64 by the options of this run");
  for (const float bad : {kInf, kNan, -1.0F, 1e-42F, 1.0F, 128.0F}) {
    EXPECT_NE(load_refusal(scaler, state(bad, 1)), "accepted") << bad;
  }
  EXPECT_EQ(load_refusal(scaler, state(16, -1)),
            "loss scaler: the state has growth_tracker -1; valid: 0 or more");
  EXPECT_EQ(load_refusal(scaler, state("static", at::full({}, 8.0F), 0)),
            "loss scaler: the state has kind \"static\", the scaler dynamic; resume with the kind "
            "that was saved");
  for (const at::ScalarType dtype : {at::kDouble, at::kHalf, at::kBFloat16, at::kLong}) {
    EXPECT_NE(load_refusal(scaler, state("dynamic", at::full({}, 8, dtype), 0)), "accepted")
        << dtype;
  }
  EXPECT_NE(load_refusal(scaler, state("dynamic", at::full({1}, 8.0F), 0)), "accepted");
  EXPECT_NE(load_refusal(scaler, tensor::StateDict()), "accepted");
  const auto damaged = [&](const std::string& name, const at::Tensor& value) {
    tensor::StateDict result;
    const tensor::StateDict whole = state(8, 1);
    result.set("kind", whole.text("kind"));
    for (const auto& [entry, tensor] : whole.tensors()) {
      if (entry != name) {
        result.set(entry, tensor);
      } else if (value.defined()) {
        result.set(entry, value);
      }
    }
    return load_refusal(scaler, result);
  };
  EXPECT_EQ(damaged("", {}), "accepted");
  for (const char* name :
       {"scale", "growth_tracker", "overflows_left", "settled", "skipped", "skipped_in_row"}) {
    EXPECT_NE(damaged(name, {}), "accepted") << name;
  }
  for (const int overflows : {0, -1, 2}) {  // hysteresis is 1
    EXPECT_NE(damaged("overflows_left", at::scalar_tensor(overflows, at::kInt)), "accepted");
  }
  for (const float settled : {kInf, kNan, -1.0F}) {
    EXPECT_NE(damaged("settled", at::full({}, settled)), "accepted") << settled;
  }
  for (const int skipped : {-1, 0}) {  // one of them in a row
    EXPECT_NE(damaged("skipped", at::scalar_tensor(skipped, at::kLong)), "accepted") << skipped;
  }
  EXPECT_NE(damaged("skipped_in_row", at::scalar_tensor(-1, at::kLong)), "accepted");
  EXPECT_EQ(scaler.value().item<float>(), 8);
}

TEST(LossScaler, AStaticScaleLoadsOnlyItsOwnValue) {
  LossScaler scaler(at::kCPU, {.kind = ScaleKind::static_, .initial = 128});
  scaler.load_state_dict(state("static", at::full({}, 128.0F), 0));
  EXPECT_EQ(load_refusal(scaler, state("static", at::full({}, 256.0F), 0)),
            "loss scaler: the state has scale 256; valid: 128 to 128 by the options of this run");
}

TEST(LossScaler, AStepOfSeveralOptimizersBacksOffOnceWhenAnyOverflowed) {
  LossScaler scaler(at::kCPU, {.initial = 8, .growth_interval = 2});
  const at::Tensor finite = at::full({}, 0.0F);
  const at::Tensor overflow = at::full({1}, 1.0F);
  scaler.update({overflow, finite, overflow});
  EXPECT_EQ(scaler.value().item<float>(), 4);
  EXPECT_EQ(scaler.skipped().item<int64_t>(), 1);
  scaler.update({finite, finite});
  scaler.update({finite, finite});
  EXPECT_EQ(scaler.value().item<float>(), 8);
  EXPECT_THROW(scaler.update(std::vector<at::Tensor>()), InvalidArgument);
  EXPECT_THROW(scaler.update({finite, at::full({}, 1, at::kLong)}), InvalidArgument);
}

thread_local int host_reads = 0;

std::unique_ptr<at::ObserverContext> count_host_read(const at::RecordFunction& function) {
  host_reads += std::string(function.name()) == "aten::_local_scalar_dense" ? 1 : 0;
  return nullptr;
}

TEST(LossScaler, AStepReadsNothingBackFromTheDevice) {
  LossScaler scaler(at::kCPU, {.initial = 8, .floor = 0.5, .ceiling = 64.0F});
  const std::vector<at::Tensor> grads = {at::ones({3})};
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(count_host_read).scopes({at::RecordScope::FUNCTION}));
  host_reads = 0;
  (void)at::ones({}).item<float>();
  EXPECT_EQ(host_reads, 1);  // so a read would be seen
  host_reads = 0;
  (void)scaler.scale(at::ones({}));
  scaler.update(scaler.unscale_(grads));
  at::removeCallback(handle);
  EXPECT_EQ(host_reads, 0);
}

}  // namespace
}  // namespace mantissa::amp
