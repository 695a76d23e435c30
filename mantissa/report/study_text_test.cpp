#include "mantissa/report/study_text.h"

#include <gmock/gmock.h>

#include "mantissa/report/speed_testing.h"
#include "mantissa/report/study_example.h"

namespace mantissa::report {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(StudyText, TheTableHasAColumnAnArmAndARowAFigure) {
  const std::string table =
      study_table(two_arms(2).analysed({.target = 2.07, .price_per_hour = 2.5, .watts = 50}));
  EXPECT_THAT(table,
              StartsWith("                                      fp32                bf16\n"
                         "seeds                                    2                   2\n"
                         "steps                                   40                  40\n"
                         "step time, median                  13.8 ms             11.0 ms\n"
                         "  95 % interval         10.0 ms to 17.5 ms  8.00 ms to 14.0 ms\n"));
  // 30 steps of 13.75 ms at 2.5 an hour, and at 360.
  EXPECT_THAT(table, HasSubstr("to the target, cost               0.000286"));
  EXPECT_THAT(study_table(two_arms(2).analysed({.price_per_hour = 36000})),
              HasSubstr("cost of a run                         5.50"));
  for (const char* row : {"tokens/s", "peak tensor bytes", "  activations", "bytes a parameter",
                          "validation, bits/base", "best Markov model", "to the target, steps",
                          "to the target, time", "to the target, cost", "cost of a run",
                          "energy of a run", "loss scale at the end", "skipped steps"}) {
    EXPECT_THAT(table, HasSubstr(row));
  }
}

TEST(StudyText, WhatWasNotAskedForHasNoRow) {
  const std::string table = study_table(two_arms(1).analysed());
  EXPECT_THAT(table, Not(HasSubstr("target")));
  EXPECT_THAT(table, Not(HasSubstr("cost")));
  EXPECT_THAT(table, HasSubstr("not measured"));
}

TEST(StudyText, CurvesAreMeansOverSeeds) {
  EXPECT_EQ(curve_table(two_arms(2, 0.1).analysed()),
            "validation after step    fp32    bf16\n"
            "10                     2.2650  2.3651\n"
            "20                     2.1650  2.2651\n"
            "30                     2.0650  2.1651\n"
            "40                     1.9650  2.0651\n");
}

TEST(StudyText, TheVerdictGivesItsReasons) {
  const std::string text =
      verdict_text(two_arms(5).analysed({.target = 2.1, .price_per_hour = 360, .watts = 60}));
  EXPECT_THAT(text, StartsWith("bf16 beside fp32: as good, 1.25 times as fast, 0.62 of the peak "
                               "memory\n  quality: equivalent: +0.00054 bits/base over 5 seeds"));
  EXPECT_THAT(text, HasSubstr("margin 0.01 (p < 0.0001); a difference of 0.00028 would be found "
                              "in 4 of 5 comparisons with as many seeds\n"));
  EXPECT_THAT(text, HasSubstr("  speed: faster: 1.25 times as fast (95 % interval 1.25 to 1.25, 20 "
                              "pairs of slices)\n"));
  EXPECT_THAT(text, HasSubstr("  memory: peak 6.50 kB, 0.62 of that of fp32 (10.5 kB); its largest "
                              "part: activations blocks.0, 4.50 kB\n"));
  EXPECT_THAT(text, HasSubstr("  target 2.1: reached after "));
  EXPECT_THAT(text, HasSubstr("step 30 (5 of 5 runs); fp32 reached after"));
  EXPECT_THAT(text, HasSubstr("  cost: a run 0.04"));
  EXPECT_THAT(text, HasSubstr("energy: 60 W as given, over training time\n"));
}

TEST(StudyText, SaysWhatCannotBeKnown) {
  const std::string text =
      verdict_text(two_arms(1).analysed({.target = 1.5, .energy_problem = "no counter here"}));
  EXPECT_THAT(text, StartsWith("bf16 beside fp32: quality not tested, 1.25 times as fast without "
                               "an interval, 0.62 of the peak memory\n"));
  EXPECT_THAT(text, HasSubstr("not tested: one seed, +0.0005 bits/base beside fp32; what another "
                              "seed would change is not known, --seeds 5 tests it"));
  EXPECT_THAT(text, HasSubstr("of 4 pairs of slices: too few for an interval"));
  EXPECT_THAT(text, HasSubstr("target 1.5: not reached (0 of 1 run); fp32 not reached (0 of 1)"));
  EXPECT_THAT(text, HasSubstr("energy: not measured (no counter here); --watts"));
}

TEST(StudyText, SaysOfWhatEnergyIs) {
  StudyExample example = two_arms(1);
  for (record::Slice& slice : example.slices) {
    slice.energy_j = 3;
    slice.energy_of = "1 processor package and 2 GPUs";
  }
  EXPECT_THAT(verdict_text(example.analysed()),
              HasSubstr("energy: of 1 processor package and 2 GPUs, with validations"));
  example.slices.front().energy_of = "1 processor package";
  EXPECT_THAT(verdict_text(example.analysed()),
              HasSubstr("energy: of 1 processor package in some turns, in others of 1 processor "
                        "package and 2 GPUs, with"));
}

TEST(StudyText, SaysSlowerWorseAndInconclusive) {
  StudyExample slower;
  for (int64_t seed = 1; seed <= 2; ++seed) {
    slower.add("fp32", seed, 0.01, 1.95);
    slower.add("bf16", seed, 0.02, 1.95 + 0.03 * static_cast<double>(seed));
  }
  EXPECT_THAT(verdict_text(slower.analysed()),
              HasSubstr("slower: 0.50 times as fast (95 % interval 0.50 to 0.50"));
  EXPECT_THAT(verdict_text(slower.analysed()),
              HasSubstr("quality: inconclusive: +0.045 bits/base over 2 seeds, 90 % interval "
                        "-0.05 to +0.14, margin 0.01; these seeds would show equivalence "
                        "within 0.14, more seeds within less"));
  EXPECT_THAT(verdict_text(two_arms(5, 0.05).analysed()), HasSubstr("bf16 beside fp32: worse, "));
  EXPECT_THAT(verdict_text(two_arms(5, 0.05).analysed()),
              HasSubstr("quality: different: worse, +0.05"));
  EXPECT_THAT(verdict_text(two_arms(5, -0.05).analysed()),
              HasSubstr("quality: different: better, -0.05"));
}

TEST(StudyText, ASlowerArmWhoseRecordsTellSaysWhy) {
  const auto compared = [](double step_s) {
    StudyExample example;
    for (int64_t seed = 1; seed <= 2; ++seed) {
      example.add("fp32", seed, 0.01, 1.95);
      record::TimeSplit split = narrow_split();
      split.phases["casts"] += 1;
      split.step_time_s += 1;
      example.add("bf16", seed, step_s, 1.95).entries.push_back({0, split});
    }
    return verdict_text(example.analysed());
  };
  EXPECT_THAT(compared(0.02), HasSubstr("pairs of slices)\n  why: cast-bound: 53 % of a step is "
                                        "casts between fp32 and bf16, 25 % products; "));
  EXPECT_THAT(compared(0.01), HasSubstr("  why: cast-bound")) << "neither faster nor slower";
  EXPECT_THAT(compared(0.005), Not(HasSubstr("  why: ")));
}

TEST(StudyText, AFailedArmIsToldOfWithItsReason) {
  StudyExample example = two_arms(2);
  example.runs[1].failure = "train: 25 steps in a row were skipped";
  example.runs[3].failure = "train: likewise";
  const Study study = example.analysed();
  EXPECT_THAT(verdict_text(study),
              HasSubstr("quality: failed: 2 of 2 runs did not come to an end; seed 1: train: 25 "
                        "steps in a row were skipped\n"));
  EXPECT_THAT(study_table(study), HasSubstr("failed"));
}

}  // namespace
}  // namespace mantissa::report
