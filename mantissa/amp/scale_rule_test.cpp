#include "mantissa/amp/scale_rule.h"

#include <limits>
#include <string>
#include <vector>

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mantissa/amp/scale_tensors.h"
#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/base/random.h"

namespace mantissa::amp {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

Overflow overflow_of(char step) {
  return step == 'x' ? Overflow::scale : step == 'm' ? Overflow::model : Overflow::none;
}

// The scale after each step of `overflows`: x for one with an overflow, m for one whose overflow is
// the model's, . for a finite one.
std::vector<float> scales(const LossScalerOptions& options, const std::string& overflows) {
  ScaleState state = initial_state(options);
  std::vector<float> result;
  for (const char step : overflows) {
    state = next_state(options, state, overflow_of(step));
    result.push_back(state.scale);
  }
  return result;
}

// Steps up to and with the first growth.
int steps_to_growth(const LossScalerOptions& options, ScaleState state) {
  const float before = state.scale;
  int steps = 0;
  while (state.scale == before) {
    state = next_state(options, state, Overflow::none);
    ++steps;
  }
  return steps;
}

TEST(ScaleRule, HysteresisForgivesOverflowsUpToTheOneThatLowers) {
  const LossScalerOptions options{.initial = 64, .growth_interval = 4, .hysteresis = 3};
  EXPECT_THAT(scales(options, "xxxx"), ElementsAre(64, 64, 32, 16));
}

TEST(ScaleRule, HysteresisIsFullAgainAfterAGrowth) {
  const LossScalerOptions options{.initial = 64, .growth_interval = 2, .hysteresis = 2};
  // A finite step in between does not refill it.
  EXPECT_THAT(scales(options, "x.x"), ElementsAre(64, 64, 32));
  EXPECT_THAT(scales(options, "x..xx"), ElementsAre(64, 64, 128, 128, 64));
}

TEST(ScaleRule, HysteresisCanBeFullAgainAfterEachFiniteStep) {
  const LossScalerOptions options{.initial = 64,
                                  .growth_interval = 100,
                                  .hysteresis = 2,
                                  .refill = HysteresisRefill::each_finite_step};
  EXPECT_THAT(scales(options, "x.x.xx"), ElementsAre(64, 64, 64, 64, 64, 32));
}

TEST(ScaleRule, ADelayPutsOffTheFirstGrowthOnly) {
  const LossScalerOptions options{.initial = 8, .growth_interval = 2, .growth_delay = 1};
  EXPECT_THAT(scales(options, "....."), ElementsAre(8, 8, 16, 16, 32));
  EXPECT_THAT(scales(options, "x..."), ElementsAre(4, 4, 4, 8));
}

// A spike takes 64 to 8; each double up to 32, half of where it began, takes one step.
TEST(ScaleRule, RegrowthIsQuickUpToWhereTheSpikeBegan) {
  const LossScalerOptions options{.initial = 64, .growth_interval = 5, .regrowth_interval = 1};
  EXPECT_THAT(scales(options, "xxx......."), ElementsAre(32, 16, 8, 16, 32, 32, 32, 32, 32, 64));
}

TEST(ScaleRule, RegrowthDoesNotRunIntoTheSameOverflowAgainAndAgain) {
  const LossScalerOptions options{.initial = 64, .growth_interval = 100, .regrowth_interval = 1};
  // 32 overflows as well: from then on it is quick up to 16.
  EXPECT_THAT(scales(options, "xx.x.."), ElementsAre(32, 16, 32, 16, 16, 16));
}

TEST(ScaleRule, AnOverflowOfTheModelIsCountedAndMovesNothingElse) {
  const LossScalerOptions options{
      .initial = 64, .growth_interval = 3, .growth_delay = 1, .hysteresis = 2};
  ScaleState before = initial_state(options);
  before.growth_tracker = 1;
  ScaleState expected = before;
  expected.skipped = expected.skipped_in_row = 1;
  EXPECT_EQ(next_state(options, before, Overflow::model), expected);
  // Neither does it use up hysteresis nor start the count of finite steps again.
  EXPECT_THAT(scales(options, "m..m.."), ElementsAre(64, 64, 64, 64, 64, 128));
  EXPECT_THAT(scales(options, "mmx"), ElementsAre(64, 64, 64));
}

TEST(ScaleRule, PresetsHaveTheNumbersOfTheirLibraries) {
  EXPECT_EQ(scale_preset("torch").initial, 65536);
  EXPECT_EQ(steps_to_growth(scale_preset("torch"), initial_state(scale_preset("torch"))), 2000);
  EXPECT_EQ(scale_preset("apex").ceiling, 0x1p24F);
  EXPECT_EQ(scale_preset("keras").initial, 32768);
  EXPECT_EQ(scale_preset("jmp").floor, 1);
  EXPECT_EQ(scale_preset("megatron").initial, 0x1p32F);
  EXPECT_EQ(steps_to_growth(scale_preset("megatron"), initial_state(scale_preset("megatron"))),
            1000);
  for (const std::string_view name : scale_preset_names()) {
    EXPECT_NO_THROW(validate(scale_preset(name))) << name;
  }
  EXPECT_EQ(message_of<InvalidArgument>([] { (void)scale_preset("depspeed"); }),
            "loss scaler: unknown preset \"depspeed\"; did you mean \"deepspeed\"?");
}

// DeepSpeed counts from the iteration of the last overflow: the window is full one step later.
TEST(ScaleRule, DeepSpeedGrowsAfterAWindowAndOneStepThenAfterEachWindow) {
  const LossScalerOptions options = scale_preset("deepspeed");
  ScaleState state = initial_state(options);
  EXPECT_EQ(steps_to_growth(options, state), 1001);
  for (int i = 0; i < 1001; ++i) {
    state = next_state(options, state, Overflow::none);
  }
  EXPECT_EQ(steps_to_growth(options, state), 1000);
  EXPECT_THAT(scales(options, "xx"), ElementsAre(65536, 32768));
}

TEST(ScaleRule, RefusesStepsOutOfRangeAndSettingsWithoutAnEffect) {
  const auto refusal = [](const LossScalerOptions& options) {
    return message_of<InvalidArgument>([&] { validate(options); });
  };
  EXPECT_EQ(refusal({.hysteresis = 0}), "loss scaler: hysteresis is 0; valid: 1 or more steps");
  EXPECT_THAT(refusal({.growth_delay = -1}), StartsWith("loss scaler: growth_delay is -1"));
  EXPECT_THAT(refusal({.regrowth_interval = -1}),
              StartsWith("loss scaler: regrowth_interval is -1"));
  EXPECT_EQ(refusal({.refill = HysteresisRefill::each_finite_step}),
            "loss scaler: refill has no effect with hysteresis 1; leave it out");
  EXPECT_THAT(refusal({.kind = ScaleKind::static_, .hysteresis = 2}),
              StartsWith("loss scaler: hysteresis is set but has no effect with kind static"));
}

// What a device would do, run on the CPU: the same states, bit for bit.
TEST(ScaleTensors, AdvanceLikeTheRule) {
  constexpr uint64_t kSeed = 5;
  Random random(kSeed, 0);
  const std::vector<LossScalerOptions> cases = {
      {.initial = 8, .growth_interval = 2},
      {.initial = 8, .floor = 2, .ceiling = 32.0F, .growth_interval = 1, .growth_delay = 2},
      {.initial = 0x1p126F, .growth = 4, .backoff = 0.25, .growth_interval = 1, .hysteresis = 2},
      {.initial = 64,
       .growth_interval = 6,
       .hysteresis = 3,
       .refill = HysteresisRefill::each_finite_step,
       .regrowth_interval = 1},
      {.initial = 64, .growth_interval = 9, .regrowth_interval = 2},
      {.kind = ScaleKind::static_, .initial = 128},
      {.kind = ScaleKind::none}};
  for (const LossScalerOptions& options : cases) {
    ScaleState expected = initial_state(options);
    const ScaleTensors tensors(expected, at::kCPU);
    for (int i = 0; i < 300; ++i) {
      const Overflow overflow = overflow_of("x..m"[random.below(4)]);
      expected = next_state(options, expected, overflow);
      // A fault of the model counts only in a step that is skipped.
      const bool is_models =
          overflow == Overflow::model || (overflow == Overflow::none && random.below(2) == 0);
      tensors.advance(options, at::full({1}, overflow == Overflow::none ? 0.0F : 2.0F),
                      at::full({}, is_models ? 1.0F : 0.0F));
      ASSERT_EQ(tensors.read(), expected) << "step " << i << " seed " << kSeed;
    }
  }
}

}  // namespace
}  // namespace mantissa::amp
