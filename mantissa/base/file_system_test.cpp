#include "mantissa/base/file_system.h"

#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "mantissa/base/memory_files.h"
#include "mantissa/base/scratch_folder.h"

namespace mantissa {
namespace {

using Open = FileSystem::Open;

// The model that the crash tests rely on must do what the operating system does.
void expect_posix_behaviour(FileSystem& files, const std::filesystem::path& root) {
  EXPECT_EQ(files.make_folder(root / "a"), 0);
  EXPECT_EQ(files.make_folder(root / "a"), -EEXIST);
  EXPECT_EQ(files.make_folder(root / "no" / "b"), -ENOENT);

  const int fd = files.open(root / "a" / "f", Open::create);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(files.open(root / "a" / "f", Open::create), -EEXIST);
  EXPECT_EQ(files.open(root / "no" / "f", Open::create), -ENOENT);
  EXPECT_EQ(files.write(fd, "hello", 5), 5);
  EXPECT_EQ(files.size(fd), 5);
  EXPECT_EQ(files.truncate(fd, 4), 0);
  EXPECT_EQ(files.sync(fd), 0);
  EXPECT_EQ(files.close(fd), 0);

  const int more = files.open(root / "a" / "f", Open::append);
  EXPECT_EQ(files.write(more, "!", 1), 1);
  EXPECT_EQ(files.close(more), 0);
  const int reading = files.open(root / "a" / "f", Open::read);
  std::string bytes(10, '.');
  EXPECT_EQ(files.read(reading, bytes.data(), bytes.size(), 1), 4);
  EXPECT_EQ(bytes, "ell!......");
  EXPECT_EQ(files.read(reading, bytes.data(), bytes.size(), 5), 0);
  EXPECT_EQ(files.close(reading), 0);

  FileSystem::Kind kind = FileSystem::Kind::folder;
  EXPECT_EQ(files.kind(root / "a" / "f", kind), 0);
  EXPECT_EQ(kind, FileSystem::Kind::file);
  EXPECT_EQ(files.kind(root / "a", kind), 0);
  EXPECT_EQ(kind, FileSystem::Kind::folder);
  EXPECT_EQ(files.kind(root / "b", kind), -ENOENT);
  EXPECT_EQ(files.open(root / "a" / "f", Open::folder), -ENOTDIR);
  EXPECT_EQ(files.open(root / "b", Open::read), -ENOENT);
  const int folder = files.open(root / "a", Open::read);
  EXPECT_EQ(files.size(folder), -EISDIR);
  EXPECT_EQ(files.close(folder), 0);

  EXPECT_EQ(files.make_folder(root / "b"), 0);
  EXPECT_EQ(files.rename(root / "b", root / "a"), -ENOTEMPTY);
  EXPECT_EQ(files.rename(root / "a", root / "b"), 0);
  EXPECT_EQ(files.rename(root / "a", root / "b"), -ENOENT);
  std::vector<std::string> names;
  EXPECT_EQ(files.list(root / "b", names), 0);
  EXPECT_EQ(names, std::vector<std::string>{"f"});
  EXPECT_EQ(files.list(root / "b" / "f", names), -ENOTDIR);
  EXPECT_EQ(files.list(root / "a", names), -ENOENT);

  EXPECT_EQ(files.remove(root / "b"), -ENOTEMPTY);
  EXPECT_EQ(files.remove(root / "b" / "f"), 0);
  EXPECT_EQ(files.remove(root / "b"), 0);
  EXPECT_EQ(files.remove(root / "b"), -ENOENT);
  EXPECT_GT(files.free_bytes(root), 0);
}

TEST(FileSystem, TheRealOneBehavesAsTheTestsAssume) {
  const ScratchFolder folder;
  expect_posix_behaviour(posix_files(), folder.path());
}

TEST(FileSystem, TheOneInMemoryBehavesLikeTheRealOne) {
  MemoryFiles files;
  expect_posix_behaviour(files, "/");
  EXPECT_EQ(files.num_open(), 0U);
}

TEST(FileSystem, ALinkIsNotFollowed) {
  const ScratchFolder folder;
  std::filesystem::create_directory_symlink(folder.path(), folder / "link");
  FileSystem::Kind kind = FileSystem::Kind::folder;
  EXPECT_EQ(posix_files().kind(folder / "link", kind), 0);
  EXPECT_EQ(kind, FileSystem::Kind::file);
}

TEST(MemoryFiles, ACrashTakesBytesAndNamesThatWereNotSynced) {
  MemoryFiles files;
  Random random(1, 0);
  const int folder = files.open("/", Open::folder);
  const int first = files.open("/first", Open::create);
  files.write(first, "synced", 6);
  files.sync(first);
  files.sync(folder);
  files.write(first, " not", 4);
  const int second = files.open("/second", Open::create);
  files.write(second, "x", 1);
  files.sync(second);  // the bytes, not the name

  files.crash(MemoryFiles::Loss::unsynced, random);
  EXPECT_EQ(files.bytes("/first"), "synced");
  FileSystem::Kind kind = FileSystem::Kind::file;
  EXPECT_EQ(files.kind("/second", kind), -ENOENT);
}

TEST(MemoryFiles, AKilledProcessLosesNothingThatWasWritten) {
  MemoryFiles files;
  Random random(1, 0);
  const int fd = files.open("/f", Open::create);
  files.write(fd, "x", 1);
  files.crash(MemoryFiles::Loss::nothing, random);
  EXPECT_EQ(files.bytes("/f"), "x");
  EXPECT_EQ(files.num_open(), 0U);
}

// The classic loss: a file renamed before its bytes were synced is found empty.
TEST(MemoryFiles, ARandomCrashCanKeepANameAndLoseItsBytes) {
  int64_t num_empty = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    MemoryFiles files;
    Random random(seed, 0);
    const int fd = files.open("/f.tmp", Open::create);
    files.write(fd, "bytes", 5);
    files.rename("/f.tmp", "/f");
    files.crash(MemoryFiles::Loss::random, random);
    FileSystem::Kind kind = FileSystem::Kind::file;
    num_empty += files.kind("/f", kind) == 0 && files.bytes("/f") != "bytes" ? 1 : 0;
  }
  EXPECT_GT(num_empty, 0);
}

}  // namespace
}  // namespace mantissa
