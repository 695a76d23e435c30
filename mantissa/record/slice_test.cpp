#include "mantissa/record/slice.h"

#include <cmath>

#include <gmock/gmock.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/base/scratch_folder.h"

namespace mantissa::record {
namespace {

Slice slice(const std::string& arm, int64_t first, int64_t last) {
  Slice result;
  result.arm = arm;
  result.seed = 7;
  result.session_s = 1e9 + 0.1;
  result.round = 3;
  result.first_step = first;
  result.last_step = last;
  result.wall_s = 1.5;
  result.peak_bytes = {{"weights", 400}};
  result.peak_holders = {{"activations blocks.0", 300}};
  return result;
}

std::vector<int64_t> first_steps(const SliceJournal& journal) {
  std::vector<int64_t> steps;
  for (const Slice& each : journal.slices()) {
    steps.push_back(each.first_step);
  }
  return steps;
}

TEST(Slice, ReadsBackWhatWasWritten) {
  Slice written = slice("bf16 \"own\"", 1, 50);
  written.energy_j = 12.25;
  written.energy_of = "1 processor package and 2 GPUs";
  const Slice read = slice_from_json(to_json(written), "here");
  EXPECT_EQ(read.arm, written.arm);
  EXPECT_EQ(read.seed, written.seed);
  EXPECT_EQ(read.session_s, written.session_s);
  EXPECT_EQ(read.round, written.round);
  EXPECT_EQ(read.first_step, written.first_step);
  EXPECT_EQ(read.last_step, written.last_step);
  EXPECT_EQ(read.steps(), 50);
  EXPECT_EQ(read.wall_s, written.wall_s);
  EXPECT_EQ(read.energy_j, written.energy_j);
  EXPECT_EQ(read.energy_of, written.energy_of);
  EXPECT_EQ(read.peak_bytes, written.peak_bytes);
  EXPECT_EQ(read.peak_holders, written.peak_holders);
  EXPECT_TRUE(std::isnan(slice_from_json(to_json(slice("a", 1, 2)), "here").energy_j));
}

TEST(SliceJournal, GoesOnAfterACloseAndAfterATornLine) {
  const ScratchFolder folder;
  const std::filesystem::path path = folder / "slices.jsonl";
  SliceJournal(path).append(slice("fp32", 1, 5));
  folder.write("slices.jsonl", folder.read("slices.jsonl") + R"({"arm": "bf)");
  SliceJournal journal(path);
  EXPECT_THAT(first_steps(journal), testing::ElementsAre(1));
  journal.append(slice("fp32", 6, 10));
  EXPECT_THAT(first_steps(SliceJournal(path)), testing::ElementsAre(1, 6));
}

TEST(SliceJournal, ASliceThatWasTrainedAgainReplacesTheOneBefore) {
  const ScratchFolder folder;
  SliceJournal journal(folder / "slices.jsonl");
  journal.append(slice("fp32", 1, 5));
  journal.append(slice("fp32", 6, 10));
  journal.append(slice("bf16", 6, 10));
  journal.append(slice("fp32", 3, 5));
  EXPECT_THAT(first_steps(journal), testing::ElementsAre(6, 3));
  EXPECT_EQ(journal.slices().front().arm, "bf16");
}

TEST(SliceJournal, ADamagedLineIsNamed) {
  const ScratchFolder folder;
  folder.write("slices.jsonl", to_json(slice("fp32", 1, 5)) + "\n{}\n");
  const std::string path = (folder / "slices.jsonl").string();
  EXPECT_EQ(message_of<Corruption>([&] { SliceJournal journal(path); }),
            path +
                ": line 2: not a slice of a comparison; the file is damaged: move it away, and "
                "the comparison goes on without what it says");
}

}  // namespace
}  // namespace mantissa::record
