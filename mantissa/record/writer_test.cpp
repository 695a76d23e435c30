#include "mantissa/record/writer.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/faulty_files.h"
#include "mantissa/base/memory_files.h"
#include "mantissa/record/reader.h"

namespace mantissa::record {
namespace {

using Effect = Fault::Effect;

// The steps of the Step events of a record, and 100 for a run_start, 200 for a run_end.
std::vector<int64_t> steps_of(const std::vector<Entry>& entries) {
  std::vector<int64_t> steps;
  for (const Entry& entry : entries) {
    if (std::holds_alternative<Step>(entry.event)) {
      steps.push_back(step_of(entry.event));
    } else if (std::holds_alternative<RunStart>(entry.event)) {
      steps.push_back(100);
    } else if (std::holds_alternative<RunEnd>(entry.event)) {
      steps.push_back(200);
    }
  }
  return steps;
}

std::vector<int64_t> steps_in(MemoryFiles& files) { return steps_of(read("/r", files).entries); }

void write_run(FileSystem& files, int64_t num_steps) {
  Writer writer = Writer::create("/r", files);
  writer.append(RunStart{});
  for (int64_t step = 1; step <= num_steps; ++step) {
    writer.append(Step{.step = step});
    writer.append(Evaluation{.step = step});
  }
}

TEST(Writer, WhatIsAppendedIsReadBack) {
  MemoryFiles files;
  Writer writer = Writer::create("/r", files);
  writer.append(Entry{12.5, Step{.step = 3, .loss = 0.1}});
  const Reading reading = read("/r", files);
  ASSERT_EQ(reading.entries.size(), 1U);
  EXPECT_EQ(reading.entries[0].time_s, 12.5);
  EXPECT_EQ(std::get<Step>(reading.entries[0].event).loss, 0.1);
  EXPECT_TRUE(writer.kept().empty());
}

TEST(Writer, AnEventAloneGetsTheTime) {
  MemoryFiles files;
  Writer writer = Writer::create("/r", files);
  writer.append(Step{});
  EXPECT_GT(read("/r", files).entries[0].time_s, 1.6e9);  // later than 2020
}

TEST(Writer, CreateDoesNotOverwriteARecord) {
  MemoryFiles files;
  write_run(files, 1);
  EXPECT_THROW((void)Writer::create("/r", files), IoError);
  EXPECT_EQ(steps_in(files), (std::vector<int64_t>{100, 1}));
}

TEST(Writer, ResumeDropsWhatIsPastTheStep) {
  for (int64_t step = 0; step <= 4; ++step) {
    MemoryFiles files;
    write_run(files, 4);
    Writer writer = Writer::resume("/r", step, files);
    EXPECT_EQ(writer.kept().size(), static_cast<size_t>(1 + 2 * step));
    EXPECT_EQ(read("/r", files).entries.size(), writer.kept().size());
    for (int64_t next = step + 1; next <= 5; ++next) {
      writer.append(Step{.step = next});
    }
    EXPECT_EQ(steps_in(files), (std::vector<int64_t>{100, 1, 2, 3, 4, 5}));
  }
}

TEST(Writer, ResumeOfAFinishedRunDropsItsEnd) {
  MemoryFiles files;
  write_run(files, 2);
  Writer::resume("/r", 2, files).append(RunEnd{});
  EXPECT_EQ(steps_in(files), (std::vector<int64_t>{100, 1, 2, 200}));
  Writer::resume("/r", 2, files).append(Step{.step = 3});
  EXPECT_EQ(steps_in(files), (std::vector<int64_t>{100, 1, 2, 3}));
}

TEST(Writer, ResumeCutsATornLine) {
  MemoryFiles files;
  write_run(files, 2);
  files.bytes("/r") += "{\"schema\":1,\"ti";
  Writer::resume("/r", 2, files).append(Step{.step = 3});
  EXPECT_EQ(steps_in(files), (std::vector<int64_t>{100, 1, 2, 3}));
}

// A power failure may leave zeros in the middle of what was not synced.
TEST(Writer, ResumePassesOverDamageThatItDropsAnyway) {
  MemoryFiles files;
  write_run(files, 2);
  std::string& bytes = files.bytes("/r");
  bytes += std::string(100, '\0') + "\n" + to_json(Entry{0, Step{.step = 5}}) + "\n";
  const std::string damaged = bytes;
  Writer::resume("/r", 2, files).append(Step{.step = 3});
  EXPECT_EQ(steps_in(files), (std::vector<int64_t>{100, 1, 2, 3}));

  files.bytes("/r") = damaged;
  EXPECT_THROW((void)Writer::resume("/r", 3, files), Corruption);
}

TEST(Writer, AFailedAppendLeavesNothingOfItsLine) {
  MemoryFiles memory;
  write_run(memory, 1);
  // Calls: open, size, half of the write, then no space until the cut has been made.
  memory.set_free_bytes(0);
  FaultyFiles counter(memory);
  { Writer writer = Writer::resume("/r", 1, counter); }
  const int64_t opened = counter.num_calls() - 1;  // without the close
  FaultyFiles files(memory, {.at_call = opened, .effect = Effect::disk_full});
  Writer writer = Writer::resume("/r", 1, files);
  EXPECT_THROW(writer.append(Step{.step = 2}), IoError);
  EXPECT_EQ(read("/r", memory).dropped_bytes, 0);
  EXPECT_EQ(steps_in(memory), (std::vector<int64_t>{100, 1}));
}

// At whatever moment the machine dies, what was synced is there, once, in order.
TEST(Writer, SyncedLinesSurviveACrashAtEveryCall) {
  for (int64_t call = 0; call < 40; ++call) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      SCOPED_TRACE(concat("call ", call, ", seed ", seed));
      MemoryFiles memory;
      Random random(seed, 0);
      write_run(memory, 4);
      int64_t synced = 0;
      {
        Writer writer = Writer::resume("/r", 4, memory);
        writer.sync();
      }
      FaultyFiles files(memory, {.at_call = call, .effect = Effect::dead});
      try {
        Writer writer = Writer::resume("/r", 2, files);
        for (int64_t step = 3; step <= 8; ++step) {
          writer.append(Step{.step = step});
          writer.sync();
          synced = step;
        }
      } catch (const IoError&) {
      }
      memory.crash(MemoryFiles::Loss::random, random);
      const int64_t resumed = std::max<int64_t>(synced, 2);
      const Writer writer = Writer::resume("/r", resumed, memory);
      std::vector<int64_t> expected = {100};
      for (int64_t step = 1; step <= resumed; ++step) {
        expected.push_back(step);
      }
      EXPECT_EQ(steps_of(writer.kept()), expected);
    }
  }
}

}  // namespace
}  // namespace mantissa::record
