#include "mantissa/checkpoint/layout.h"

#include <string>

#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/memory_files.h"

namespace mantissa::checkpoint {
namespace {

TEST(Layout, EachStepHasOneName) {
  EXPECT_EQ(step_in_name(step_name(0)), 0);
  EXPECT_EQ(step_in_name("step-9223372036854775807"), INT64_MAX);
  EXPECT_EQ(step_in_name("step-12.old-00000001"), 12);
  EXPECT_EQ(step_in_name("step-12.tmp-00000001"), 12);
  for (const char* name : {"step-007", "step--1", "step-", "step-1x", "step-9223372036854775808",
                           "Step-1", "latest", "", "step-1 ", "run.toml"}) {
    EXPECT_EQ(step_in_name(name), std::nullopt) << name;
  }
}

TEST(Layout, OnlyOurOwnTemporariesAreTemporary) {
  for (const char* name : {"step-1.tmp-0", "latest.tmp-1b2f09aa", "best.tmp-0"}) {
    EXPECT_TRUE(is_temporary(name)) << name;
  }
  for (const char* name : {"step-1", "step-1.old-0", "notes.tmp-0", "latest", "step-x.tmp-0"}) {
    EXPECT_FALSE(is_temporary(name)) << name;
  }
}

TEST(Layout, CandidatesAreTheLatestFirstByNumber) {
  MemoryFiles files;
  for (const char* name : {"step-9", "step-10", "step-10.old-1", "step-2.tmp-1", "other"}) {
    create_folders(std::filesystem::path("/d") / name, files);
  }
  const std::vector<Candidate> found = candidates("/d", files);
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].name, "step-10");
  EXPECT_EQ(found[1].name, "step-10.old-1");
  EXPECT_TRUE(found[1].is_old);
  EXPECT_EQ(found[2].name, "step-9");
  EXPECT_TRUE(candidates("/none", files).empty());
}

TEST(Layout, PointersAreReadBack) {
  MemoryFiles files;
  EXPECT_EQ(read_pointer("/", kBest, files), std::nullopt);
  write_pointer("/", kBest, 12, files);
  write_pointer("/", kBest, 400, files);
  EXPECT_EQ(read_pointer("/", kBest, files), 400);
  EXPECT_EQ(files.bytes("/best").substr(0, 9), "step-400 ");
}

TEST(Layout, AChangedPointerIsCorruption) {
  MemoryFiles files;
  write_pointer("/", kLatest, 300, files);
  std::string& bytes = files.bytes("/latest");
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
    EXPECT_THROW((void)read_pointer("/", kLatest, files), Corruption) << bit;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
  }
  const std::string whole = bytes;
  for (size_t size = 0; size < whole.size(); ++size) {
    bytes = whole.substr(0, size);
    EXPECT_THROW((void)read_pointer("/", kLatest, files), Corruption) << size;
  }
  try {
    (void)read_pointer("/", kLatest, files);
  } catch (const Corruption& error) {
    EXPECT_STREQ(error.what(),
                 "checkpoint /latest: not a step and its checksum; the file is damaged, remove it");
  }
}

}  // namespace
}  // namespace mantissa::checkpoint
