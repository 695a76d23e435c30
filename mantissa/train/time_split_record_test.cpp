#include "mantissa/train/time_split_record.h"

#include <gmock/gmock.h>

namespace mantissa::train {
namespace {

using monitor::OperationKind;
using monitor::OperationTime;
using monitor::Phase;
using ::testing::ElementsAre;
using ::testing::Pair;

OperationTime row(const std::string& operation, OperationKind kind, double time_s,
                  const std::string& scope = "", Phase phase = Phase::forward) {
  OperationTime result;
  result.phase = phase;
  result.scope = scope;
  result.operation = result.within = operation;
  result.kind = kind;
  result.format = "bf16";
  result.calls = 1;
  result.time_s = time_s;
  result.flops = 10;
  result.bytes = 4;
  return result;
}

// Nothing was looked at, so that nothing is taken out of the phases for it.
record::TimeSplit split_of(std::map<std::string, double> phases,
                           const std::vector<OperationTime>& rows) {
  monitor::OperationTimes times;
  (void)times.finish();
  const FormatReasons reasons(amp::parse_policy("torch-fixed compute=bf16"), KernelChoices());
  return time_split_event(7, std::move(phases), times, rows, reasons);
}

TEST(TimeSplitEvent, CastsAreTakenOutOfTheirPhases) {
  const record::TimeSplit split = split_of(
      {{"forward", 4}, {"backward", 8}, {"other", 1}},
      {row("aten::_to_copy", OperationKind::cast, 1), row("aten::mm", OperationKind::product, 2),
       row("aten::_to_copy", OperationKind::cast, 2, "", Phase::backward)});
  EXPECT_EQ(split.step, 7);
  EXPECT_THAT(split.phases, ElementsAre(Pair("backward", 6), Pair("casts", 3), Pair("forward", 3),
                                        Pair("other", 1)));
  EXPECT_EQ(split.step_time_s, 13);
  EXPECT_EQ(split.look_s, 0);
}

TEST(TimeSplitEvent, LayersThatDifferInANumberAreOneRow) {
  const record::TimeSplit split =
      split_of({{"forward", 4}}, {row("aten::mm", OperationKind::product, 1, "blocks.0.mlp"),
                                  row("aten::mm", OperationKind::product, 2, "blocks.11.mlp"),
                                  row("aten::mm", OperationKind::product, 0.5, "blocks.2b.mlp")});
  ASSERT_EQ(split.operations.size(), 2U);
  EXPECT_EQ(split.operations[0].scope, "blocks.*.mlp");
  EXPECT_EQ(split.operations[0].calls, 2);
  EXPECT_EQ(split.operations[0].time_s, 3);
  EXPECT_EQ(split.operations[0].flops, 20);
  EXPECT_EQ(split.operations[0].bytes, 8);
  EXPECT_TRUE(split.operations[0].eligible);
  EXPECT_TRUE(split.operations[0].in_16_bits);
  EXPECT_EQ(split.operations[1].scope, "blocks.2b.mlp");
}

TEST(TimeSplitEvent, SmallRowsThat16BitsCannotDoAreTogether) {
  OperationTime small = row("aten::sum", OperationKind::other, 0.5);
  small.format = "fp32";
  OperationTime smaller = row("aten::ne", OperationKind::other, 0.25);
  smaller.format = "";
  const record::TimeSplit split = with_small_rows_together(
      split_of({{"forward", 1000}}, {row("aten::mm", OperationKind::product, 0.25),
                                     row("aten::_to_copy", OperationKind::cast, 0.125), small,
                                     smaller, row("aten::t", OperationKind::view, 2)}));
  std::vector<std::string> names;
  for (const record::OperationRow& each : split.operations) {
    names.push_back(each.operation);
  }
  EXPECT_THAT(names, ElementsAre("aten::t", "others", "aten::mm", "aten::_to_copy"));
  EXPECT_EQ(split.operations[1].calls, 2);
  EXPECT_EQ(split.operations[1].time_s, 0.75);
}

TEST(TimeSplitEvent, AReplayHasNoRows) {
  EXPECT_TRUE(split_of({{"forward", 1}, {"replay", 9}},
                       {row("aten::mm", OperationKind::product, 9, "", Phase::replay)})
                  .operations.empty());
}

TEST(PhasesOf, AReplayIsThereWhenItWas) {
  monitor::TimeSplit split;
  EXPECT_EQ(phases_of(split).count("replay"), 0U);
  EXPECT_EQ(phases_of(split).size(), 5U);
  {
    const monitor::TimeSplit::Scope replay(&split, Phase::replay);
    while (split.seconds(Phase::replay) == 0) {
    }
  }
  EXPECT_GT(phases_of(split).at("replay"), 0);
}

}  // namespace
}  // namespace mantissa::train
