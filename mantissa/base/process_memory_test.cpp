#include "mantissa/base/process_memory.h"

#include <unistd.h>

#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/scratch_folder.h"

namespace mantissa {
namespace {

constexpr int64_t kResidentPages = 10;

// A planted system of 1,000 KiB available memory and a process of ten pages.
class ProcessMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_.write("proc/meminfo", "MemTotal:  9000 kB\nMemFree:   10 kB\nMemAvailable:  1000 kB\n");
    root_.write("proc/self/statm", concat("500 ", kResidentPages, " 3 1 0 20 0\n"));
  }

  int64_t available() const {
    const ProcessMemory memory = process_memory(root_.path()).value();
    EXPECT_EQ(memory.resident_bytes, kResidentPages * ::sysconf(_SC_PAGESIZE));
    return memory.available_bytes;
  }

  ScratchFolder root_;
};

TEST_F(ProcessMemoryTest, WithoutGroupsTheSystemDecides) { EXPECT_EQ(available(), 1'024'000); }

TEST_F(ProcessMemoryTest, TheTightestGroupOfVersion2Decides) {
  root_.write("proc/self/cgroup", "0::/job/step\n");
  root_.write("sys/fs/cgroup/job/step/memory.max", "max\n");
  root_.write("sys/fs/cgroup/job/step/memory.current", "300000\n");
  EXPECT_EQ(available(), 1'024'000);
  root_.write("sys/fs/cgroup/job/memory.max", "500000\n");
  root_.write("sys/fs/cgroup/job/memory.current", "300000\n");
  EXPECT_EQ(available(), 200'000);
  root_.write("sys/fs/cgroup/job/memory.stat", "anon 1\ninactive_file 50000\n");
  EXPECT_EQ(available(), 250'000);
}

TEST_F(ProcessMemoryTest, AGroupOfVersion1Decides) {
  root_.write("proc/self/cgroup", "5:devices:/x\n4:cpu,memory:/x\n0::/\n");
  root_.write("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "9223372036854771712\n");
  root_.write("sys/fs/cgroup/memory/x/memory.usage_in_bytes", "100\n");
  EXPECT_EQ(available(), 1'024'000);
  root_.write("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "1000\n");
  EXPECT_EQ(available(), 900);
}

TEST_F(ProcessMemoryTest, AGroupOverItsLimitLeavesNothing) {
  root_.write("proc/self/cgroup", "0::/\n");
  root_.write("sys/fs/cgroup/memory.max", "100\n");
  root_.write("sys/fs/cgroup/memory.current", "300\n");
  EXPECT_EQ(available(), 0);
}

TEST_F(ProcessMemoryTest, ASystemThatDoesNotTellIsNotGuessed) {
  std::filesystem::remove(root_ / "proc/meminfo");
  EXPECT_FALSE(process_memory(root_.path()).has_value());
}

TEST(ProcessMemory, LeavesAPartOfAllUnused) {
  EXPECT_EQ((ProcessMemory{320, 640}).usable_bytes(), 610);
  EXPECT_EQ((ProcessMemory{3200, 64}).usable_bytes(), 0);
}

TEST(ProcessMemory, ThisProcessHasRoom) {
  const auto memory = process_memory();
  if (!memory) {
    GTEST_SKIP() << "no /proc/meminfo here";
  }
  EXPECT_GT(memory->resident_bytes, 0);
  EXPECT_GT(memory->available_bytes, 0);
}

}  // namespace
}  // namespace mantissa
