#include "mantissa/train/inspect_run.h"

#include <cmath>
#include <set>

#include <gmock/gmock.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/train/loop.h"
#include "mantissa/train/tiny_run_test.h"

namespace mantissa::train {
namespace {

using monitor::Range;
using monitor::ValueKind;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

class InspectRunTest : public TinyRunTest {
 protected:
  static void SetUpTestSuite() { ops::install_cpu_kernels(); }

  static const Range* find(const monitor::Ranges& ranges, ValueKind kind,
                           const std::string& scope) {
    for (const Range& range : ranges.all()) {
      if (range.kind == kind && range.scope == scope) {
        return &range;
      }
    }
    return nullptr;
  }
};

TEST_F(InspectRunTest, SeesEveryKindInEveryScopeOfTheModel) {
  const Inspection inspection = inspect_run(config(), {.steps = 2});
  EXPECT_EQ(inspection.looked_at, 2);
  std::set<std::string> scopes;
  for (const Range& range : inspection.ranges.all()) {
    if (range.kind == ValueKind::activation) {
      scopes.insert(range.scope);
    }
  }
  for (const char* scope : {"blocks.0.attention", "blocks.0.mlp", "head"}) {
    EXPECT_TRUE(scopes.contains(scope)) << scope;
    EXPECT_NE(find(inspection.ranges, ValueKind::gradient, scope), nullptr) << scope;
  }
  const Range* weight = find(inspection.ranges, ValueKind::weight, "blocks.0.mlp.up");
  ASSERT_NE(weight, nullptr);
  EXPECT_EQ(weight->values.count, 2 * 64 * 16) << "twice: mlp_ratio * width by width";
  const Range* update = find(inspection.ranges, ValueKind::update, "blocks.0.mlp.up");
  ASSERT_NE(update, nullptr);
  EXPECT_EQ(update->values.count, weight->values.count);
  EXPECT_GT(update->values.largest, 0);
  for (const InspectedStep& step : inspection.steps) {
    EXPECT_EQ(step.origin.operation, "");
  }
}

// The losses of its steps are those of the run, to the last bit.
TEST_F(InspectRunTest, ItsStepsAreThoseOfTheRun) {
  for (const char* precision : {"fp32", "bf16", "fp16"}) {
    std::vector<double> trained;
    const RunConfig run = config({{"precision.compute", precision}});
    (void)start_run(run, root_ / precision, {.observe = [&](const record::Event& event) {
                      if (const auto* step = std::get_if<record::Step>(&event)) {
                        trained.push_back(step->loss);
                      }
                    }});
    std::vector<double> inspected;
    (void)inspect_run(run, {.steps = 5, .observe = [&](const record::Event& event) {
                              if (const auto* step = std::get_if<record::Step>(&event)) {
                                inspected.push_back(step->loss);
                              }
                            }});
    trained.resize(inspected.size());
    EXPECT_EQ(inspected, trained) << precision;
  }
}

TEST_F(InspectRunTest, BeginsAtACheckpoint) {
  std::vector<double> trained;
  const RunConfig run = config();
  (void)start_run(run, root_ / "run", {.observe = [&](const record::Event& event) {
                    if (const auto* step = std::get_if<record::Step>(&event)) {
                      trained.push_back(step->loss);
                    }
                  }});
  const Inspection inspection =
      inspect_run(run, {.steps = 1, .checkpoint = root_ / "run" / "checkpoints" / "step-8"});
  ASSERT_EQ(inspection.steps.size(), 1U);
  EXPECT_EQ(inspection.steps[0].step, 9);
  EXPECT_EQ(inspection.steps[0].loss, trained[8]);

  const Inspection in_fp16 = inspect_run(config({{"precision.compute", "fp16"}}),
                                         {.steps = 1, .checkpoint = root_ / "run"});
  EXPECT_EQ(in_fp16.steps.back().step, 10 + static_cast<int64_t>(in_fp16.steps.size()) - 1);
}

TEST_F(InspectRunTest, StepsOfAScaleOnItsWayDownAreNotCounted) {
  const Inspection inspection = inspect_run(
      config({{"precision.compute", "fp16"}, {"scale.initial", "67108864.0"}}), {.steps = 1});
  EXPECT_EQ(inspection.looked_at, 1);
  EXPECT_GT(inspection.steps.size(), 1U);
  EXPECT_TRUE(inspection.steps.front().skipped);
  EXPECT_FALSE(inspection.steps.front().origin.operation.empty());
  EXPECT_FALSE(inspection.steps.back().skipped);
  for (const Range& range : inspection.ranges.all()) {
    EXPECT_EQ(range.values.num_nonfinite(), 0) << range.scope << " " << range.name;
  }
}

TEST_F(InspectRunTest, AStaticScaleThatIsTooHighIsSeen) {
  const Inspection inspection = inspect_run(
      config({{"precision.compute", "fp16"}, {"scale.kind", "static"}, {"scale.initial", "1e12"}}),
      {.steps = 1});
  EXPECT_EQ(inspection.steps.size(), 1U);
  EXPECT_TRUE(inspection.steps[0].origin.in_backward);
}

TEST_F(InspectRunTest, ARunThatRecomputesIsSeenWhole) {
  const Inspection inspection = inspect_run(config({{"train.recompute", "block"}}), {.steps = 1});
  EXPECT_NE(find(inspection.ranges, ValueKind::activation, "blocks.0.mlp"), nullptr);
}

TEST_F(InspectRunTest, EventsAreThoseOfARecord) {
  std::vector<std::string> kinds;
  (void)inspect_run(
      config(), {.steps = 2, .observe = [&](const record::Event& event) {
                   kinds.emplace_back(std::holds_alternative<record::RunStart>(event) ? "start"
                                      : std::holds_alternative<record::Step>(event)   ? "step"
                                      : std::holds_alternative<record::Ranges>(event) ? "ranges"
                                                                                      : "other");
                   if (const auto* ranges = std::get_if<record::Ranges>(&event)) {
                     EXPECT_THAT(ranges->values, Not(IsEmpty()));
                   }
                 }});
  EXPECT_THAT(kinds, ElementsAre("start", "step", "ranges", "step", "ranges"));
}

// Of numbers of a format none becomes 0 or overflows in it.
TEST_F(InspectRunTest, AnEmulatedFormatHoldsTheResultsOfWhatThePolicyLowers) {
  for (const numerics::Format format : numerics::kNarrowFormats) {
    const Inspection inspection =
        inspect_run(config({{"precision.compute", "fp16"}}), {.steps = 1, .emulate = format});
    const Range* linear = nullptr;
    for (const Range& range : inspection.ranges.all()) {
      linear = range.name == "aten::linear" ? &range : linear;
    }
    ASSERT_NE(linear, nullptr);
    EXPECT_EQ(linear->format, "fp32");
    EXPECT_GT(linear->values.count, 0);
    EXPECT_EQ(linear->values.in(format).zero, 0);
    EXPECT_EQ(linear->values.in(format).overflow, 0);
    EXPECT_FALSE(inspection.steps.back().skipped);
  }
}

TEST_F(InspectRunTest, RefusesNoStepsAndEmulationsWithoutEffect) {
  EXPECT_EQ(
      message_of<InvalidArgument>(
          [&] { (void)inspect_run(config(), {.emulate = numerics::Format::fp8_e4m3}); }),
      "inspect: emulation of fp8_e4m3 stands for casts to 16 bits, and the precision is fp32; "
      "use precision bf16 or fp16");
  EXPECT_EQ(message_of<InvalidArgument>([&] { (void)inspect_run(config(), {.steps = 0}); }),
            "inspect: steps is 0; use 1 or more");
}

}  // namespace
}  // namespace mantissa::train
