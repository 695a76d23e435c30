#include "mantissa/train/run_slice.h"

#include <gmock/gmock.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/record/reader.h"
#include "mantissa/train/tiny_run_test.h"

namespace mantissa::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class RunSliceTest : public TinyRunTest {
 protected:
  static void SetUpTestSuite() { ops::install_cpu_kernels(); }
};

// Runs of three formats take turns; all state moves in FP16, which overflows at first.
TEST_F(RunSliceTest, RunsThatTakeTurnsAreBitForBitRunsAlone) {
  std::vector<RunConfig> runs;
  for (const std::string precision : {"fp32", "bf16"}) {
    runs.push_back(config({{"precision.compute", precision}}));
  }
  runs.push_back(config({{"precision.compute", "fp16"},
                         {"precision.param", "fp16"},
                         {"scale.initial", "1e9"},
                         {"scale.growth_interval", "3"},
                         {"train.microbatch", "2"},
                         {"train.checkpoint_every", "2"}}));
  std::vector<bool> has_ended(runs.size());
  for (int left = 3, turns = 0; left > 0; ++turns) {
    ASSERT_LT(turns, 20);
    for (size_t i = 0; i < runs.size(); ++i) {
      if (!has_ended[i]) {
        const SliceOutcome slice = run_slice(runs[i], root_ / runs[i].precision.compute);
        has_ended[i] = slice.outcome.ending == Ending::finished;
        left -= has_ended[i] ? 1 : 0;
      }
    }
  }
  for (const RunConfig& run : runs) {
    SCOPED_TRACE(run.precision.compute);
    const std::filesystem::path alone = root_ / ("alone-" + run.precision.compute);
    const record::Summary whole = start_run(run, alone).summary;
    const record::Summary taken = run_slice(run, root_ / run.precision.compute).outcome.summary;
    EXPECT_EQ(taken.loss, whole.loss);
    EXPECT_EQ(taken.bits_per_base, whole.bits_per_base);
    EXPECT_EQ(taken.skipped_steps, whole.skipped_steps);
    expect_equal(final_state(root_ / run.precision.compute), final_state(alone));
  }
}

TEST_F(RunSliceTest, ASliceEndsAtACheckpointThatTheRunSavesAnyway) {
  const RunConfig run = config();  // 9 steps
  std::vector<int64_t> ends;
  std::vector<int64_t> firsts;
  for (SliceOutcome slice; slice.outcome.ending != Ending::finished || ends.empty();) {
    slice = run_slice(run, root_ / "a");
    firsts.push_back(slice.first_step);
    ends.push_back(slice.last_step);
    ASSERT_LT(ends.size(), 10U);
    if (slice.outcome.ending == Ending::finished) {
      break;
    }
  }
  const int64_t every = run.train.eval_every;
  ASSERT_GT(ends.size(), 1U);
  for (size_t i = 0; i < ends.size(); ++i) {
    EXPECT_EQ(ends[i], std::min<int64_t>(every * static_cast<int64_t>(i + 1), run.train.steps));
    EXPECT_EQ(firsts[i], every * static_cast<int64_t>(i) + 1);
  }
  const auto saved = [&](const std::filesystem::path& folder) {
    std::vector<int64_t> steps;
    for (const record::Entry& entry : record::read(folder / "record.jsonl").entries) {
      if (const auto* checkpoint = std::get_if<record::CheckpointSaved>(&entry.event)) {
        steps.push_back(checkpoint->step);
      }
    }
    return steps;
  };
  start_run(run, root_ / "alone");
  EXPECT_EQ(saved(root_ / "a"), saved(root_ / "alone"));
}

TEST_F(RunSliceTest, TheCallersStopEndsASliceEarlyAndTheNextGoesOn) {
  const RunConfig run = config();
  std::atomic<int> stop{0};
  LoopOptions options;
  options.stop = &stop;
  options.observe = [&](const record::Event& event) {
    stop = std::holds_alternative<record::Step>(event) ? 1 : stop.load();
  };
  EXPECT_EQ(run_slice(run, root_ / "a", options).last_step, 1);
  const SliceOutcome next = run_slice(run, root_ / "a");
  EXPECT_EQ(next.first_step, 2);
  EXPECT_EQ(next.last_step, run.train.eval_every);
}

TEST_F(RunSliceTest, AnEndedRunHasNoFurtherSteps) {
  const RunConfig run = config();
  const record::Summary summary = start_run(run, root_ / "a").summary;
  const SliceOutcome slice = run_slice(run, root_ / "a");
  EXPECT_EQ(slice.outcome.ending, Ending::finished);
  EXPECT_EQ(slice.first_step, 0);
  EXPECT_EQ(slice.last_step, 0);
  EXPECT_EQ(slice.outcome.summary, summary);
}

TEST_F(RunSliceTest, RefusesAFolderWithAnotherRun) {
  run_slice(config(), root_ / "a");
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                run_slice(config({{"train.seed", "77"}}), root_ / "a");
              }),
              HasSubstr("a: holds a run with other settings; choose another --out"));
}

}  // namespace
}  // namespace mantissa::train
