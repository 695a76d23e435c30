#include "mantissa/report/attribution.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>

#include "mantissa/report/study_example.h"

namespace mantissa::report {
namespace {

using testing::HasSubstr;
using testing::Not;

const std::vector<AttributionCell> kCells = {{"fp32 microbatch 8", "fp32", "8"},
                                             {"fp32 microbatch auto", "fp32", "auto"},
                                             {"bf16 microbatch 8", "bf16", "8"},
                                             {"bf16 microbatch auto", "bf16", "auto"}};

StudyExample four_cells(int64_t seeds) {
  StudyExample example;
  for (int64_t seed = 1; seed <= seeds; ++seed) {
    const double step_s[] = {0.010, 0.008, 0.008, 0.005};
    for (size_t i = 0; i < kCells.size(); ++i) {
      example.add(kCells[i].arm, seed, step_s[i], 1.96).microbatch =
          kCells[i].microbatch == "8" ? 8 : 32;
    }
  }
  return example;
}

TEST(Attribution, EffectsOfARoundMultiplyToWhatTheyDoTogether) {
  const Study study = four_cells(2).analysed({.target = 2.07});
  const Attribution result = attribute(study, kCells);
  ASSERT_EQ(result.effects.size(), 4U);
  const double expected[] = {1.25, 1.25, 2 / (1.25 * 1.25), 2};
  const char* factors[] = {"microbatch", "format", "interaction", "together"};
  for (size_t i = 0; i < 4; ++i) {
    const Effect& effect = result.effects[i];
    EXPECT_EQ(effect.factor, factors[i]);
    EXPECT_NEAR(effect.speed.value, expected[i], 1e-12);
    EXPECT_NEAR(effect.speed.low, expected[i], 1e-12);  // the drift meets all cells of a round
    EXPECT_EQ(effect.rounds, 8);
    EXPECT_NEAR(effect.target.value, expected[i], 1e-12);  // after as many steps in each cell
    EXPECT_TRUE(std::isnan(effect.target.low));
    EXPECT_EQ(effect.seeds, 2);
  }
  EXPECT_EQ(result.effects[0].text, "auto (32) for 8, in fp32");
  EXPECT_EQ(result.effects[1].text, "bf16 for fp32, at microbatch 8");
  EXPECT_EQ(result.effects[2].text, "microbatch auto (32) in bf16 over that in fp32");
  EXPECT_EQ(result.effects[3].text, "bf16 at auto (32) for fp32 at 8");
  EXPECT_TRUE(result.stopping.empty());
}

TEST(Attribution, ARoundCountsWhenAllItsCellsTookTheirTurn) {
  StudyExample example = four_cells(1);
  example.slices.pop_back();  // of bf16 at auto
  const Attribution result = attribute(example.analysed(), kCells);
  EXPECT_EQ(result.effects[0].rounds, 4);
  EXPECT_EQ(result.effects[2].rounds, 3);
  EXPECT_EQ(result.effects[3].rounds, 3);
  EXPECT_TRUE(std::isnan(result.effects[3].speed.low));  // of fewer than six
  EXPECT_EQ(result.effects[0].seeds, 0);                 // no target was asked for
}

TEST(Attribution, OfOneMicrobatchThereIsTheFormatAndOfOneFormatTheMicrobatch) {
  const Study study = four_cells(1).analysed();
  const auto factors = [&](const std::vector<AttributionCell>& cells) {
    std::string text;
    for (const Effect& effect : attribute(study, cells).effects) {
      text += effect.factor + " " + effect.text + ";";
    }
    return text;
  };
  EXPECT_EQ(factors({kCells[0], kCells[2]}), "format bf16 for fp32;");
  EXPECT_EQ(factors({kCells[0], kCells[1]}), "microbatch auto (32) for 8, in fp32;");
}

// Patience 1 ends the run at step 30, after a validation of 2.0, a better and a worse one.
TEST(Attribution, EarlyStoppingIsCountedOnRunsThatWereNotStopped) {
  StudyExample example = four_cells(1);
  const double bits[] = {2.0, 1.98, 1.99, 1.95};
  size_t next = 0;
  for (record::Entry& entry : example.runs[3].entries) {
    if (auto* evaluation = std::get_if<record::Evaluation>(&entry.event)) {
      evaluation->bits_per_base = bits[next++];
    }
  }
  const Study study = example.analysed({.target = 1.965, .patience = 1});
  const RunResult& run = study.arm("bf16 microbatch auto").runs.front();
  EXPECT_EQ(run.stop_step, 30);
  EXPECT_NEAR(run.stop_s, run.training_s * 30 / 40, 1e-12);
  EXPECT_EQ(run.stop_bits, 1.98);
  EXPECT_EQ(run.best_bits, 1.95);
  EXPECT_EQ(study.arm("fp32 microbatch 8").runs.front().stop_step, 40);
  const Attribution result = attribute(study, kCells);
  ASSERT_EQ(result.stopping.size(), 4U);
  EXPECT_EQ(result.stopping[3].step, 30);
  EXPECT_NEAR(result.stopping[3].speed, 4.0 / 3, 1e-12);
  EXPECT_NEAR(result.stopping[3].difference, 0.03, 1e-12);
  const std::string text = attribution_text(study, kCells, result, 32);
  EXPECT_THAT(text, HasSubstr("early stopping: bf16 microbatch auto: patience 1 ends at step 30 of "
                              "40, a run 1.33 times as short, its best validation by 0.0300 "
                              "bits/base worse\n"));
  EXPECT_THAT(text, HasSubstr("early stopping: fp32 microbatch 8: patience 1 does not end it "
                              "before step 40\n"));
  // The target is reached at step 40, which that run does not come to with patience.
  EXPECT_THAT(text, testing::ContainsRegex("bf16 microbatch auto .* 275 ms +not reached "));
  EXPECT_THAT(text, testing::ContainsRegex("fp32 microbatch 8 .* 550 ms +550 ms "));
}

TEST(Attribution, TheTextSaysWhatWasNotVaried) {
  const Study study = four_cells(2).analysed();
  const std::string text = attribution_text(study, kCells, attribute(study, kCells), 32);
  EXPECT_THAT(text, HasSubstr("together: bf16 at auto (32) for fp32 at 8"));
  EXPECT_THAT(text, HasSubstr("effective batch: 32 sequences in each run"));
  EXPECT_THAT(text, HasSubstr("ranks: one in each run"));
  EXPECT_THAT(text, Not(HasSubstr("target")));
  EXPECT_THAT(text, Not(HasSubstr("patience")));
}

}  // namespace
}  // namespace mantissa::report
