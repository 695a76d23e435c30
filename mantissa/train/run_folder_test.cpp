#include "mantissa/train/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/base/scratch_folder.h"

namespace mantissa::train {
namespace {

class RunFolderTest : public ::testing::Test {
 protected:
  ScratchFolder root_;
};

TEST_F(RunFolderTest, RefusesASecondRunInOneFolder) {
  {
    const RunFolder folder = RunFolder::create(root_ / "a");
    replace_file(folder.config(), "");
  }
  EXPECT_THAT([&] { RunFolder::create(root_ / "a"); },
              ::testing::ThrowsMessage<InvalidArgument>(
                  ::testing::HasSubstr("already holds a run; continue it with --resume")));
  EXPECT_EQ(RunFolder::open(root_ / "a").path(), root_ / "a");
}

TEST_F(RunFolderTest, IsHeldByOneAtATime) {
  const RunFolder held = RunFolder::create(root_ / "a");
  EXPECT_THAT([&] { RunFolder::create(root_ / "a"); },
              ::testing::ThrowsMessage<IoError>(::testing::HasSubstr("another process works in")));
}

TEST_F(RunFolderTest, OpenNeedsARun) {
  EXPECT_THAT([&] { RunFolder::open(root_ / "none"); },
              ::testing::ThrowsMessage<IoError>(::testing::HasSubstr("holds no run")));
}

TEST_F(RunFolderTest, ADamagedRunFileIsSaidToBeTheRunsOwn) {
  const RunFolder folder = RunFolder::create(root_ / "a");
  for (const char* text : {"", "[data]\nfasta = \"/gen", "[data]\nfast = 1\n"}) {
    replace_file(folder.config(), text);
    EXPECT_THAT(
        [&] { (void)load_run_of(root_ / "a"); },
        ::testing::ThrowsMessage<Corruption>(::testing::AllOf(
            ::testing::StartsWith((root_ / "a" / "run.toml").string() +
                                  ": the settings of this run are damaged or were changed"),
            ::testing::HasSubstr("; put the file back, record.jsonl begins with its text"))));
  }
}

}  // namespace
}  // namespace mantissa::train
