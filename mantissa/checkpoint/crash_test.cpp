// Whatever call of a write fails, and wherever the machine dies in it: the earlier checkpoint or
// the one being written can be read, whole, and the next write works.

#include <cerrno>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/faulty_files.h"
#include "mantissa/base/memory_files.h"
#include "mantissa/checkpoint/example_checkpoint.h"
#include "mantissa/checkpoint/layout.h"
#include "mantissa/checkpoint/reader.h"
#include "mantissa/checkpoint/writer.h"

namespace mantissa::checkpoint {
namespace {

using Effect = Fault::Effect;
using Loss = MemoryFiles::Loss;

// What is on the disk before the write that goes wrong, and that write.
struct Scenario {
  const char* name;
  std::vector<int64_t> before;  // steps, in this order
  int64_t keep_last = 1;
  int64_t step = 0;  // of the write
  bool first_is_best = false;
};

void PrintTo(const Scenario& scenario, std::ostream* out) { *out << scenario.name; }

const Scenario kScenarios[] = {
    {.name = "TheNextStep", .before = {1}, .step = 2},
    {.name = "TheNextStepOfSeveral",
     .before = {1, 2, 3},
     .keep_last = 2,
     .step = 4,
     .first_is_best = true},
    {.name = "AStepOnceMore", .before = {1}, .step = 1},
    {.name = "AStepOnceMoreOfSeveral", .before = {1, 2}, .keep_last = 2, .step = 2},
    {.name = "AnEarlierStep", .before = {3, 5}, .keep_last = 2, .step = 4},
};

// The checkpoint of the write, never equal to one before.
Checkpoint written(const Scenario& scenario) {
  Checkpoint checkpoint = example_checkpoint(scenario.step + 1000);
  checkpoint.step = scenario.step;
  return checkpoint;
}

void prepare(const Scenario& scenario, MemoryFiles& files) {
  for (const int64_t step : scenario.before) {
    write("/d", example_checkpoint(step), {.keep_last = 10}, files);
  }
  if (scenario.first_is_best) {
    mark_best("/d", scenario.before.front(), files);
  }
}

// Empty when the write says that it has worked.
std::string write_with(FileSystem& files, const Scenario& scenario) {
  try {
    write("/d", written(scenario), {.keep_last = scenario.keep_last}, files);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

void expect_old_or_new(const Scenario& scenario, const std::string& error, MemoryFiles& files) {
  const Loaded loaded = read_latest("/d", files);
  const bool is_new = same(loaded.checkpoint, written(scenario));
  const bool is_old = same(loaded.checkpoint, example_checkpoint(scenario.before.back()));
  EXPECT_TRUE(error.empty() ? is_new : is_new || is_old)
      << "found step " << loaded.checkpoint.step << " after: " << error;
  // Nothing that could be taken for a checkpoint is less than one, and no pointer leads nowhere.
  EXPECT_TRUE(loaded.messages.empty()) << loaded.messages.front();
  for (const Candidate& candidate : candidates("/d", files)) {
    EXPECT_NO_THROW(verify(std::string("/d/") + candidate.name, files)) << candidate.name;
  }
  if (scenario.first_is_best) {
    EXPECT_TRUE(
        same(read_best("/d", files).checkpoint, example_checkpoint(scenario.before.front())));
  }
  // The next write, without a fault, works and leaves nothing behind.
  Checkpoint next = example_checkpoint(10);
  write("/d", next, {.keep_last = 1}, files);
  EXPECT_TRUE(same(read_latest("/d", files).checkpoint, next));
  for (const std::string& name : list_folder("/d", files)) {
    EXPECT_FALSE(is_temporary(name)) << name;
    EXPECT_EQ(name.find(".old-"), std::string::npos) << name;
  }
}

int64_t num_calls_of(const Scenario& scenario) {
  MemoryFiles memory;
  prepare(scenario, memory);
  FaultyFiles files(memory);
  EXPECT_EQ(write_with(files, scenario), "");
  return files.num_calls();
}

class CrashTest : public ::testing::TestWithParam<Scenario> {};

TEST_P(CrashTest, AnErrorAtAnyCallLeavesTheOldOrTheNew) {
  const Scenario& scenario = GetParam();
  const int64_t num_calls = num_calls_of(scenario);
  ASSERT_GT(num_calls, 30);
  for (const int error : {EIO, ENOSPC, EACCES}) {
    for (int64_t call = 0; call < num_calls; ++call) {
      SCOPED_TRACE(concat("errno ", error, " at call ", call));
      MemoryFiles memory;
      prepare(scenario, memory);
      FaultyFiles files(memory, {.at_call = call, .effect = Effect::once, .error = error});
      const std::string message = write_with(files, scenario);
      EXPECT_EQ(memory.num_open(), 0U);
      EXPECT_TRUE(message.empty() || message.find("/d") != std::string::npos) << message;
      EXPECT_TRUE(message.empty() || message.find("; ") != std::string::npos) << message;
      expect_old_or_new(scenario, message, memory);
    }
  }
}

TEST_P(CrashTest, ADiskThatFillsUpAtAnyCallLeavesTheOldOrTheNew) {
  const Scenario& scenario = GetParam();
  const int64_t num_calls = num_calls_of(scenario);
  for (int64_t call = 0; call < num_calls; ++call) {
    SCOPED_TRACE(concat("full at call ", call));
    MemoryFiles memory;
    prepare(scenario, memory);
    FaultyFiles files(memory, {.at_call = call, .effect = Effect::disk_full});
    const std::string message = write_with(files, scenario);
    EXPECT_TRUE(message.empty() || message.find("No space left on device; ") != std::string::npos)
        << message;
    // The half that was written does not stay on the full disk.
    for (const std::string& name : list_folder("/d", memory)) {
      EXPECT_FALSE(is_temporary(name)) << name;
    }
    expect_old_or_new(scenario, message, memory);
  }
}

TEST_P(CrashTest, ShortWritesAreNoFault) {
  const Scenario& scenario = GetParam();
  MemoryFiles memory;
  prepare(scenario, memory);
  FaultyFiles files(memory, {.at_call = 0, .effect = Effect::short_write});
  const std::string message = write_with(files, scenario);
  EXPECT_EQ(message, "");
  expect_old_or_new(scenario, message, memory);
}

TEST_P(CrashTest, ACrashAtAnyCallLeavesTheOldOrTheNew) {
  const Scenario& scenario = GetParam();
  const int64_t num_calls = num_calls_of(scenario);
  constexpr uint64_t kSeeds = 12;
  for (int64_t call = 0; call <= num_calls; ++call) {
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      SCOPED_TRACE(concat("dead at call ", call, ", seed ", seed));
      MemoryFiles memory;
      Random random(seed, 0);
      prepare(scenario, memory);
      FaultyFiles files(memory, {.at_call = call, .effect = Effect::dead});
      const std::string message = write_with(files, scenario);
      memory.crash(seed == 0 ? Loss::nothing : seed == 1 ? Loss::unsynced : Loss::random, random);
      expect_old_or_new(scenario, message, memory);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Scenarios, CrashTest, ::testing::ValuesIn(kScenarios),
                         [](const auto& scenario) { return std::string(scenario.param.name); });

}  // namespace
}  // namespace mantissa::checkpoint
