#include "mantissa/base/file.h"

#include <cerrno>
#include <filesystem>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/faulty_files.h"
#include "mantissa/base/memory_files.h"
#include "mantissa/base/message_of.h"
#include "mantissa/base/scratch_folder.h"

namespace mantissa {
namespace {

using Effect = Fault::Effect;
using Names = std::vector<std::string>;

class FileTest : public ::testing::Test {
 protected:
  ScratchFolder folder_;
};

TEST_F(FileTest, ReplaceAndReadAreInverse) {
  const std::string bytes("a\0b\n\xff", 5);
  replace_file(folder_ / "f", bytes);
  EXPECT_EQ(read_file(folder_ / "f"), bytes);
  replace_file(folder_ / "f", "");
  EXPECT_EQ(read_file(folder_ / "f"), "");
  EXPECT_EQ(list_folder(folder_.path()), Names{"f"});
}

TEST_F(FileTest, MakesListsAndRemovesTrees) {
  create_folders(folder_ / "a" / "b" / "c");
  create_folders(folder_ / "a" / "b");
  replace_file(folder_ / "a" / "z", "1");
  replace_file(folder_ / "a" / "m", "2");
  EXPECT_EQ(list_folder(folder_ / "a"), (Names{"b", "m", "z"}));
  rename_path(folder_ / "a" / "m", folder_ / "a" / "z");
  EXPECT_EQ(read_file(folder_ / "a" / "z"), "2");
  EXPECT_TRUE(folder_exists(folder_ / "a"));
  EXPECT_FALSE(folder_exists(folder_ / "a" / "z"));
  EXPECT_TRUE(path_exists(folder_ / "a" / "z"));
  remove_tree(folder_ / "a");
  remove_tree(folder_ / "a");
  EXPECT_FALSE(path_exists(folder_ / "a"));
}

TEST_F(FileTest, RemoveTreeDoesNotFollowLinks) {
  create_folders(folder_ / "kept");
  replace_file(folder_ / "kept" / "f", "1");
  create_folders(folder_ / "gone");
  std::filesystem::create_directory_symlink(folder_ / "kept", folder_ / "gone" / "link");
  EXPECT_TRUE(folder_exists(folder_ / "gone" / "link"));
  remove_tree(folder_ / "gone");
  EXPECT_EQ(read_file(folder_ / "kept" / "f"), "1");
}

TEST_F(FileTest, SaysWhatIsMissing) {
  const std::string path = (folder_ / "no").string();
  EXPECT_EQ(message_of<IoError>([&] { (void)read_file(path); }),
            "file " + path + ": cannot open it: No such file or directory; check the path");
  EXPECT_EQ(message_of<IoError>([&] { (void)list_folder(path); }),
            "file " + path + ": cannot list the folder: No such file or directory; check the path");
  EXPECT_EQ(message_of<IoError>([&] { (void)read_file(folder_.path()); }),
            "file " + folder_.path().string() +
                ": cannot ask for its size: Is a directory; check the path");
  replace_file(folder_ / "f", "1");
  for (const char* below : {"f", "f/a", "f/a/b"}) {
    EXPECT_EQ(
        message_of<IoError>([&] { create_folders(folder_ / below); }),
        "file " + (folder_ / "f").string() + ": is there and is not a folder; choose another path");
  }
}

TEST_F(FileTest, SaysWhoMayNotWrite) {
  MemoryFiles memory;
  FaultyFiles files(memory, {.at_call = 0, .error = EACCES});
  const std::string message = message_of<IoError>([&] { replace_file("/f", "x", files); });
  EXPECT_EQ(message.find("file /f.tmp-"), 0U) << message;
  EXPECT_NE(message.find(": cannot open it for writing: Permission denied; check who may write "
                         "there, or choose another folder"),
            std::string::npos)
      << message;
}

TEST_F(FileTest, AFullDiskSaysWhatWasNeededAndWhatIsFree) {
  MemoryFiles memory;
  memory.set_free_bytes(17);
  OutputFile probe("/f", FileSystem::Open::create, memory);
  FaultyFiles files(memory, {.at_call = 1, .effect = Effect::disk_full});
  OutputFile file("/g", FileSystem::Open::create, files);
  EXPECT_EQ(message_of<IoError>([&] { file.write(std::string(1000, 'x')); }),
            "file /g: cannot write 500 bytes: No space left on device; 17 bytes are free there, "
            "free some space or choose another folder");
}

TEST_F(FileTest, ShortWritesAreContinued) {
  MemoryFiles memory;
  FaultyFiles files(memory, {.at_call = 0, .effect = Effect::short_write});
  replace_file("/f", "all of it", files);
  EXPECT_EQ(memory.bytes("/f"), "all of it");
}

TEST_F(FileTest, AReadPastTheEndIsCorruption) {
  replace_file(folder_ / "f", "12345");
  InputFile file(folder_ / "f");
  EXPECT_EQ(file.size_bytes(), 5);
  char bytes[4];
  try {
    file.read(bytes, 4, 3);
    FAIL() << "expected Corruption";
  } catch (const Corruption& error) {
    EXPECT_EQ(std::string(error.what()),
              "file " + (folder_ / "f").string() +
                  ": ends at byte 5 where 2 more were expected; it was cut, use another copy");
  }
}

TEST_F(FileTest, AppendContinuesAndTruncateCuts) {
  replace_file(folder_ / "f", "12345");
  OutputFile file(folder_ / "f", FileSystem::Open::append);
  EXPECT_EQ(file.size_bytes(), 5);
  file.write("678");
  file.truncate(6);
  OutputFile moved = std::move(file);
  moved.write("9");
  EXPECT_EQ(moved.size_bytes(), 7);
  moved.close();
  EXPECT_EQ(read_file(folder_ / "f"), "1234569");
}

TEST_F(FileTest, WriteWholeLeavesNoTornPiece) {
  MemoryFiles memory;
  FaultyFiles files(memory, {.at_call = 2, .effect = Effect::once, .error = ENOSPC});
  OutputFile file("/f", FileSystem::Open::create, files);
  file.write_whole("first;");
  EXPECT_THROW(file.write_whole("second;"), IoError);
  EXPECT_EQ(memory.bytes("/f"), "first;");
  file.write_whole("third;");
  EXPECT_EQ(memory.bytes("/f"), "first;third;");
  EXPECT_EQ(file.size_bytes(), 12);
}

TEST_F(FileTest, WriteWholeCutsLaterWhatItCouldNotCutAtOnce) {
  MemoryFiles memory;
  FaultyFiles full(memory, {.at_call = 1, .effect = Effect::disk_full});
  FaultyFiles files(full, {.at_call = 4, .error = EIO});  // open, write, write, free_bytes, cut
  OutputFile file("/f", FileSystem::Open::create, files);
  EXPECT_THROW(file.write_whole("torn"), IoError);
  EXPECT_EQ(memory.bytes("/f"), "to");
  EXPECT_THROW(file.write_whole("next"), IoError);  // still full, but cut
  EXPECT_EQ(memory.bytes("/f"), "");
}

// Whichever call fails: the old content or the new, an error or success, no descriptor left open.
TEST_F(FileTest, ReplaceIsWholeOrNothingWhateverCallFails) {
  for (const Effect effect : {Effect::once, Effect::disk_full, Effect::dead}) {
    int64_t num_calls = 1;
    for (int64_t call = 0; call < num_calls; ++call) {
      SCOPED_TRACE(concat("effect ", static_cast<int>(effect), ", call ", call));
      MemoryFiles memory;
      replace_file("/f", "old", memory);
      FaultyFiles files(memory, {.at_call = call, .effect = effect});
      const std::string message =
          message_of<IoError>([&] { replace_file("/f", "new bytes", files); });
      num_calls = std::max(num_calls, files.num_calls());
      const std::string found = read_file("/f", memory);
      EXPECT_EQ(memory.num_open(), 0U);
      if (message == "nothing thrown") {
        EXPECT_EQ(found, "new bytes");
      } else {
        EXPECT_TRUE(found == "old" || found == "new bytes") << found;
      }
      if (effect == Effect::once && call > 0) {
        EXPECT_EQ(list_folder("/", memory), Names{"f"});  // no temporary file is left
      }
    }
    EXPECT_GE(num_calls, 5);
  }
}

TEST_F(FileTest, ReplaceIsWholeOrNothingThroughACrash) {
  for (int64_t call = 0; call < 10; ++call) {
    for (uint64_t seed = 0; seed < 50; ++seed) {
      SCOPED_TRACE(concat("call ", call, ", seed ", seed));
      MemoryFiles memory;
      Random random(seed, 0);
      replace_file("/f", "old", memory);
      FaultyFiles files(memory, {.at_call = call, .effect = Effect::dead});
      const std::string message =
          message_of<IoError>([&] { replace_file("/f", "new bytes", files); });
      memory.crash(seed == 0 ? MemoryFiles::Loss::unsynced : MemoryFiles::Loss::random, random);
      const std::string found = read_file("/f", memory);
      if (message == "nothing thrown") {
        EXPECT_EQ(found, "new bytes");
      } else {
        EXPECT_TRUE(found == "old" || found == "new bytes") << found;
      }
    }
  }
}

TEST(File, FolderOfABareNameIsHere) {
  EXPECT_EQ(folder_of("f"), ".");
  EXPECT_EQ(folder_of("a/f"), "a");
  EXPECT_EQ(folder_of("/f"), "/");
}

TEST(File, TemporaryNamesDiffer) {
  EXPECT_NE(temporary_beside("a/f"), temporary_beside("a/f"));
  EXPECT_EQ(temporary_beside("a/f").string().substr(0, 8), "a/f.tmp-");
}

}  // namespace
}  // namespace mantissa
