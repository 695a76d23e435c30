#include "mantissa/report/study.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/report/study_example.h"

namespace mantissa::report {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(Study, StepTimeIsTheMedianOfSlicesWithoutTheirWarmUp) {
  const Study study = two_arms(2).analysed();
  const ArmResult& fp32 = study.arm("fp32");
  EXPECT_EQ(study.reference, "fp32");
  EXPECT_EQ(study.seeds, 2);
  EXPECT_EQ(fp32.slices, 8);
  EXPECT_EQ(fp32.runs.front().timed_steps, 20);
  // Medians of the rounds: 10, 12.5, 15 and 17.5 ms, of two seeds.
  EXPECT_DOUBLE_EQ(fp32.step_s.value, (0.0125 + 0.015) / 2);
  EXPECT_GE(fp32.step_s.low, 0.01);
  EXPECT_LE(fp32.step_s.high, 0.0175);
  EXPECT_LT(fp32.step_s.low, fp32.step_s.high);
  EXPECT_DOUBLE_EQ(fp32.tokens_per_s, 4096 / fp32.step_s.value);
}

// The machine slows down to 1.75 of the time from round to round, and the ratio does not feel it.
TEST(Study, ADriftOfTheMachineDoesNotReachTheSpeedOfPairs) {
  const Study study = two_arms(2).analysed();
  const ArmResult& bf16 = study.arm("bf16");
  EXPECT_EQ(bf16.pairs, 8);
  ASSERT_TRUE(bf16.speed);
  EXPECT_DOUBLE_EQ(bf16.speed->value, 1.25);
  EXPECT_NEAR(bf16.speed->low, 1.25, 1e-12);
  EXPECT_NEAR(bf16.speed->high, 1.25, 1e-12);
  EXPECT_FALSE(study.arm("fp32").speed);
}

TEST(Study, SlicesOfAnotherProcessRoundOrStepsAreNoPair) {
  StudyExample example = two_arms(2);
  int64_t changed = 0;
  for (record::Slice& slice : example.slices) {
    if (slice.arm == "bf16" && slice.seed == 1) {
      switch (changed++) {
        case 0:
          slice.session_s += 1;
          break;
        case 1:
          slice.round += 1;
          break;
        case 2:
          slice.last_step -= 1;
          break;
        default:
          break;
      }
    }
  }
  EXPECT_EQ(example.analysed().arm("bf16").pairs, 5);
  for (record::Slice& slice : example.slices) {
    slice.session_s += slice.arm == "bf16" ? 5 : 0;
  }
  EXPECT_FALSE(example.analysed().arm("bf16").speed);
}

TEST(Study, FewerThanSixSamplesHaveNoInterval) {
  const Study study = two_arms(1).analysed();
  EXPECT_EQ(study.arm("bf16").pairs, 4);
  EXPECT_DOUBLE_EQ(study.arm("bf16").speed->value, 1.25);
  EXPECT_TRUE(std::isnan(study.arm("bf16").speed->low));
  EXPECT_TRUE(std::isnan(study.arm("fp32").step_s.high));
}

TEST(Study, ARunWithoutSlicesHasTheStepTimeOfItsRecord) {
  StudyExample example = two_arms(1);
  example.slices.clear();
  const Study study = example.analysed();
  EXPECT_EQ(study.arm("bf16").step_s.value, 0.008);
  EXPECT_EQ(study.arm("bf16").pairs, 0);
  // Warm-up is not told from the rest: in order 8, 10, 12, 14 ms five times each, then thrice that.
  EXPECT_NEAR(study.arm("bf16").training_s, 40 * (0.014 + 0.024) / 2, 1e-12);
}

TEST(Study, TimeToTheTargetEndsAtTheFirstValidationAtOrBelowIt) {
  // Validations of seed 1 in FP32: 2.26, 2.16, 2.06, 1.96.
  const Study study = two_arms(1).analysed({.target = 2.06 + 1e-9, .price_per_hour = 36});
  const RunResult& run = study.arm("fp32").runs.front();
  EXPECT_EQ(run.target_step, 30);
  // The median of what is timed, five steps each of 10, 12.5, 15 and 17.5 ms.
  const double expected = 30 * 0.01375;
  EXPECT_NEAR(run.target_s, expected, 1e-12);
  EXPECT_NEAR(run.training_s, 40 * 0.01375, 1e-12);
  EXPECT_EQ(study.arm("fp32").reached, 1);
  EXPECT_EQ(study.arm("fp32").target_step, 30);
  EXPECT_NEAR(study.arm("fp32").target_cost, expected / 100, 1e-12);
  EXPECT_NEAR(study.arm("fp32").cost, run.training_s / 100, 1e-12);
  EXPECT_NEAR(study.training_s, 1.8 * run.training_s, 1e-12);
}

// It ran again to be explained, which is a price of the format.
TEST(Study, ASkippedStepCountsWithItsOwnTime) {
  StudyExample example = two_arms(1);
  for (record::Entry& entry : example.runs[1].entries) {
    auto* step = std::get_if<record::Step>(&entry.event);
    if (step != nullptr && step->step == 2) {
      step->skipped = true;
      step->step_time_s = 5;
    }
  }
  EXPECT_NEAR(example.analysed().arm("bf16").training_s, 39 * 0.011 + 5, 1e-12);
}

TEST(Study, ATargetThatHalfOfTheRunsMissedIsNotReached) {
  StudyExample example = two_arms(2);  // last validations of FP32: 1.96 and 1.97
  const ArmResult missed = example.analysed({.target = 1.965}).arm("fp32");
  EXPECT_EQ(missed.reached, 1);
  EXPECT_EQ(missed.target_s, kInf);
  EXPECT_EQ(missed.target_step, kInf);
  EXPECT_EQ(example.analysed({.target = 1.9}).arm("bf16").reached, 0);
  EXPECT_TRUE(std::isnan(example.analysed().arm("fp32").target_s));
  EXPECT_EQ(example.analysed().arm("fp32").reached, 0);
}

TEST(Study, QualityIsTestedOverSeedsPairedBySeed) {
  // Seeds differ by 0.01 from each other, arms by 0.0005 for a seed.
  const Study study = two_arms(5).analysed({.margin = 0.002});
  const ArmResult& bf16 = study.arm("bf16");
  ASSERT_TRUE(bf16.quality);
  EXPECT_EQ(bf16.quality->pairs, 5U);
  EXPECT_LT(bf16.quality->deviation, 0.0003);
  EXPECT_EQ(quality_verdict(bf16), QualityVerdict::equivalent);
  EXPECT_NEAR(bf16.bits_per_base - study.arm("fp32").bits_per_base, bf16.quality->mean, 1e-12);
  EXPECT_EQ(quality_verdict(two_arms(5, 0.05).analysed().arm("bf16")), QualityVerdict::different);
  EXPECT_EQ(quality_verdict(two_arms(2, 0.0005).analysed({.margin = 1e-4}).arm("bf16")),
            QualityVerdict::inconclusive);
}

TEST(Study, OneSeedOrNoValidationIsNoTest) {
  EXPECT_EQ(quality_verdict(two_arms(1).analysed().arm("bf16")), QualityVerdict::not_tested);
  StudyExample example = two_arms(3);
  for (StudyRun& run : example.runs) {
    run.summary.bits_per_base = kNotKnown;
    std::erase_if(run.entries, [](const record::Entry& entry) {
      return std::holds_alternative<record::Evaluation>(entry.event);
    });
  }
  EXPECT_EQ(quality_verdict(example.analysed().arm("bf16")), QualityVerdict::not_tested);
}

TEST(Study, ARunThatFailedOrDivergedFailsItsArm) {
  StudyExample example = two_arms(3);
  example.runs[3].failure = "train: 25 steps in a row were skipped";
  Study study = example.analysed();
  EXPECT_EQ(study.arm("bf16").failed, 1);
  EXPECT_EQ(study.arm("bf16").differences.size(), 2U);
  EXPECT_FALSE(study.arm("bf16").quality);
  EXPECT_EQ(quality_verdict(study.arm("bf16")), QualityVerdict::failed);
  example.runs[3].failure.clear();
  example.runs[3].summary.bits_per_base = kNotKnown;
  study = example.analysed();
  EXPECT_EQ(study.arm("bf16").failed, 0);
  EXPECT_EQ(quality_verdict(study.arm("bf16")), QualityVerdict::failed);
}

TEST(Study, ThePeakIsThatOfTheHighestSlice) {
  const Study study = two_arms(2).analysed();
  const ArmResult& bf16 = study.arm("bf16");
  EXPECT_EQ(bf16.peak_total, 6500);
  EXPECT_EQ(bf16.peak_bytes.at("activations"), 4500);
  EXPECT_EQ(bf16.peak_holders.at("activations blocks.0"), 4500);
  EXPECT_DOUBLE_EQ(bf16.memory, 6500.0 / 10500);
}

TEST(Study, EnergyIsSummedAndWhatWasNotMeasuredTakenToBeLikeTheRest) {
  StudyExample example = two_arms(1);
  for (record::Slice& slice : example.slices) {
    slice.energy_j = slice.arm == "fp32" ? 3 : 2;
    slice.energy_of = slice.arm == "fp32" ? "1 GPU" : "2 GPUs";
  }
  EXPECT_DOUBLE_EQ(example.analysed().arm("fp32").energy_j, 12);
  EXPECT_EQ(example.analysed().arm("fp32").runs.front().energy_steps, 40);
  EXPECT_THAT(example.analysed().energy_of, testing::ElementsAre("1 GPU", "2 GPUs"));
  example.slices.front().energy_j = kNotKnown;
  EXPECT_DOUBLE_EQ(example.analysed().arm("fp32").energy_j, 12);
  EXPECT_EQ(example.analysed().arm("fp32").runs.front().energy_steps, 30);
  const Study by_watts = example.analysed({.watts = 50});
  EXPECT_DOUBLE_EQ(by_watts.arm("bf16").energy_j, 50 * by_watts.arm("bf16").training_s);
  EXPECT_TRUE(std::isnan(two_arms(1).analysed().arm("fp32").energy_j));
}

TEST(Study, TheScaleIsKeptWhereItChanges) {
  StudyExample example = two_arms(1);
  example.add("fp16", 1, 0.009, 1.97);
  const Study study = example.analysed();
  const std::vector<record::Step>& scales = study.arm("fp16").runs.front().scales;
  ASSERT_EQ(scales.size(), 2U);
  EXPECT_EQ(scales[0].scale, 65536);
  EXPECT_EQ(scales[1].step, 21);
  EXPECT_EQ(scales[1].scale, 32768);
}

TEST(Study, RefusesRunsOfDifferentModels) {
  StudyExample example = two_arms(1);
  example.runs[1].summary.params = 7;
  EXPECT_EQ(message_of<InvalidArgument>([&] { (void)example.analysed(); }),
            "compare: run bf16 has 7 parameters, run fp32 1000; compare runs of the same model");
}

}  // namespace
}  // namespace mantissa::report
