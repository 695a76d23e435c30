#include "mantissa/checkpoint/writer.h"

#include <algorithm>
#include <filesystem>
#include <string>

#include <gmock/gmock.h>

#include "mantissa/base/error.h"
#include "mantissa/base/faulty_files.h"
#include "mantissa/base/memory_files.h"
#include "mantissa/base/scratch_folder.h"
#include "mantissa/checkpoint/example_checkpoint.h"
#include "mantissa/checkpoint/layout.h"
#include "mantissa/checkpoint/reader.h"

namespace mantissa::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Writer, WhatIsWrittenIsReadBackOnARealDisk) {
  const ScratchFolder folder;
  const Saved saved = write(folder / "a" / "b", example_checkpoint(400));
  EXPECT_EQ(saved.folder, folder / "a" / "b" / "step-400");
  const Loaded loaded = read_latest(folder / "a" / "b");
  EXPECT_TRUE(same(loaded.checkpoint, example_checkpoint(400)));
  EXPECT_EQ(loaded.folder, saved.folder);
  EXPECT_THAT(loaded.messages, IsEmpty());
  int64_t size = 0;
  for (const auto& file : std::filesystem::directory_iterator(saved.folder)) {
    size += static_cast<int64_t>(file.file_size());
  }
  EXPECT_EQ(saved.size_bytes, size);
  EXPECT_THAT(list_folder(saved.folder),
              ElementsAre("manifest.json", "manifest.xxh3", "tensors.safetensors"));
}

TEST(Writer, KeepsTheLastOnesAndTheBest) {
  MemoryFiles files;
  write("/d", example_checkpoint(9), {}, files);
  mark_best("/d", 9, files);
  for (const int64_t step : {10, 11, 100}) {
    const Saved saved = write("/d", example_checkpoint(step), {}, files);
    EXPECT_THAT(saved.messages, IsEmpty());
  }
  EXPECT_THAT(list_folder("/d", files),
              ElementsAre("best", "latest", "step-100", "step-11", "step-9"));
  EXPECT_TRUE(same(read_best("/d", files).checkpoint, example_checkpoint(9)));
  mark_best("/d", 100, files);
  write("/d", example_checkpoint(101), {.keep_last = 1}, files);
  EXPECT_THAT(list_folder("/d", files), ElementsAre("best", "latest", "step-100", "step-101"));
}

TEST(Writer, LaterStepsOfALeftFutureStayAndAreNotTheLatest) {
  MemoryFiles files;
  for (const int64_t step : {100, 200, 50}) {
    write("/d", example_checkpoint(step), {}, files);
  }
  EXPECT_TRUE(same(read_latest("/d", files).checkpoint, example_checkpoint(50)));
  EXPECT_THAT(list_folder("/d", files), ElementsAre("latest", "step-100", "step-200", "step-50"));
}

TEST(Writer, AStepIsReplaced) {
  MemoryFiles files;
  write("/d", example_checkpoint(3), {}, files);
  Checkpoint again = example_checkpoint(4);
  again.step = 3;
  write("/d", again, {}, files);
  EXPECT_TRUE(same(read_latest("/d", files).checkpoint, again));
  EXPECT_THAT(list_folder("/d", files), ElementsAre("latest", "step-3"));
}

TEST(Writer, RemovesWhatAKilledWriterLeftAndNothingElse) {
  MemoryFiles files;
  create_folders("/d/step-7.tmp-00000001", files);
  replace_file("/d/step-7.tmp-00000001/tensors.safetensors", "half", files);
  replace_file("/d/latest.tmp-00000002", "x", files);
  replace_file("/d/run.toml", "mine", files);
  write("/d", example_checkpoint(8), {}, files);
  EXPECT_THAT(list_folder("/d", files), ElementsAre("latest", "run.toml", "step-8"));
}

TEST(Writer, ADiskThatIsTooSmallIsNamedBeforeAnythingIsWritten) {
  MemoryFiles files;
  files.set_free_bytes(10);
  try {
    write("/d", example_checkpoint(8), {}, files);
    FAIL() << "expected IoError";
  } catch (const IoError& error) {
    EXPECT_STREQ(error.what(),
                 "checkpoint /d/step-8: needs 16 bytes, 10 are free; free some space or choose "
                 "another folder");
  }
  EXPECT_THAT(list_folder("/d", files), IsEmpty());
}

TEST(Writer, BadArgumentsAreRefused) {
  MemoryFiles files;
  const auto message = [&](const Checkpoint& checkpoint, int64_t keep_last) -> std::string {
    try {
      write("/d", checkpoint, {.keep_last = keep_last}, files);
    } catch (const InvalidArgument& error) {
      EXPECT_FALSE(has_checkpoint("/d", files));
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message(example_checkpoint(1), 0),
            "checkpoint /d: keep_last is 0; it must be at least 1");
  Checkpoint negative = example_checkpoint(1);
  negative.step = -1;
  EXPECT_EQ(message(negative, 1), "checkpoint /d: step is -1; it must not be negative");
  Checkpoint binary = example_checkpoint(1);
  binary.state.set("bytes", std::string("\xff"));
  EXPECT_THAT(message(binary, 1), HasSubstr("is not UTF-8; keep bytes in a uint8 tensor"));
  Checkpoint complex = example_checkpoint(1);
  complex.state.set("z", at::zeros({1}, at::kComplexFloat));
  EXPECT_THAT(message(complex, 1), HasSubstr("tensor \"z\" is ComplexFloat; valid: F64"));
}

TEST(Writer, OnlyACheckpointCanBeTheBest) {
  MemoryFiles files;
  write("/d", example_checkpoint(1), {}, files);
  try {
    mark_best("/d", 2, files);
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "checkpoint /d: there is no step-2 to be the best; mark one that was written");
  }
}

TEST(Writer, ADamagedBestPointerKeepsEverything) {
  MemoryFiles files;
  write("/d", example_checkpoint(1), {}, files);
  mark_best("/d", 1, files);
  files.bytes("/d/best")[5] = '2';
  for (const int64_t step : {2, 3}) {
    const Saved saved = write("/d", example_checkpoint(step), {.keep_last = 1}, files);
    EXPECT_THAT(saved.messages,
                ElementsAre("earlier checkpoints were not removed: checkpoint /d/best: not a step "
                            "and its checksum; the file is damaged, remove it"));
  }
  EXPECT_EQ(candidates("/d", files).size(), 3U);
}

// A disk that loses a bit on the way is noticed while the earlier checkpoint is there.
TEST(Writer, WhatIsReadBackWrongIsNotPublished) {
  class LossyFiles : public FaultyFiles {
   public:
    using FaultyFiles::FaultyFiles;
    int64_t write(int fd, const void* data, size_t size) override {
      std::string bytes(static_cast<const char*>(data), size);
      if (size == 12) {  // the tensor of three floats
        bytes[5] = static_cast<char>(bytes[5] ^ 4);
      }
      return FaultyFiles::write(fd, bytes.data(), size);
    }
  };
  MemoryFiles memory;
  write("/d", example_checkpoint(1), {}, memory);
  LossyFiles files(memory);
  EXPECT_THROW(write("/d", example_checkpoint(2), {}, files), Corruption);
  EXPECT_THAT(list_folder("/d", memory), ElementsAre("latest", "step-1"));
  EXPECT_TRUE(same(read_latest("/d", memory).checkpoint, example_checkpoint(1)));
}

}  // namespace
}  // namespace mantissa::checkpoint
