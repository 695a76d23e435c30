#include "mantissa/report/run_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mantissa/report/run_testing.h"

namespace mantissa::report {
namespace {

using ::testing::ElementsAre;

TEST(RunGroups, RunsThatDifferOnlyInTheirSeedAreOne) {
  const std::vector<report::Run> runs = {example_run("a", "fp32", 1), example_run("b", "bf16", 1),
                                         example_run("c", "fp32", 2), example_run("d", "fp16", 1)};
  const std::vector<RunGroup> groups = groups_of(runs);
  ASSERT_EQ(groups.size(), 3U);
  EXPECT_EQ(groups[0].name, "fp32 (2 runs)");
  EXPECT_THAT(groups[0].runs, ElementsAre(0, 2));
  EXPECT_EQ(groups[1].name, "b");
  EXPECT_EQ(groups[2].name, "d");
  EXPECT_THAT(group_of_each(groups), ElementsAre(0, 1, 0, 2));
}

TEST(RunGroups, AreCalledByAsManySettingsAsTellThemApart) {
  std::vector<report::Run> runs;
  for (const int64_t seed : {1, 2}) {
    for (const char* rate : {"0.1", "0.2"}) {
      report::Run run = example_run("run", "bf16", seed);
      run.settings["optim.lr"] = rate;
      run.settings["optim.warmup"] = rate;  // says nothing more
      runs.push_back(run);
    }
  }
  const std::vector<RunGroup> groups = groups_of(runs);
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0].name, "bf16, lr 0.1 (2 runs)");
  EXPECT_EQ(groups[1].name, "bf16, lr 0.2 (2 runs)");
  EXPECT_THAT(differing_settings(runs), ElementsAre("optim.lr", "optim.warmup", "train.seed"));
}

TEST(RunGroups, ARunWhoseSettingsAreNotKnownIsAlone) {
  std::vector<report::Run> runs = {example_run("a", "fp32", 1), example_run("b", "fp32", 2)};
  runs[0].settings.clear();
  runs[1].settings.clear();
  EXPECT_EQ(groups_of(runs).size(), 2U);
  EXPECT_TRUE(differing_settings(runs).empty());
}

}  // namespace
}  // namespace mantissa::report
