#include "mantissa/record/reader.h"

#include <string>

#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/memory_files.h"

namespace mantissa::record {
namespace {

std::string three_lines() {
  std::string bytes;
  for (int64_t step = 1; step <= 3; ++step) {
    bytes += to_json(Entry{0, Step{.step = step}}) + "\n";
  }
  return bytes;
}

Reading read_bytes(const std::string& bytes) {
  MemoryFiles files;
  replace_file("/r", bytes, files);
  return read("/r", files);
}

TEST(Reader, ReadsEveryLine) {
  const Reading reading = read_bytes(three_lines());
  ASSERT_EQ(reading.entries.size(), 3U);
  EXPECT_EQ(step_of(reading.entries[2].event), 3);
  EXPECT_EQ(reading.dropped_bytes, 0);
  EXPECT_TRUE(read_bytes("").entries.empty());
}

TEST(Reader, ATornLastLineIsDroppedAndCounted) {
  const std::string bytes = three_lines();
  const size_t second_end = bytes.find('\n', bytes.find('\n') + 1) + 1;
  for (size_t size = second_end; size < bytes.size(); ++size) {
    const Reading reading = read_bytes(bytes.substr(0, size));
    EXPECT_EQ(reading.entries.size(), 2U);
    EXPECT_EQ(reading.dropped_bytes, static_cast<int64_t>(size - second_end));
  }
}

TEST(Reader, ABadLineWithAnEndIsNamedByItsNumber) {
  std::string bytes = three_lines();
  bytes.insert(bytes.find('\n') + 1, "{torn\n");
  try {
    (void)read_bytes(bytes);
    FAIL() << "expected Corruption";
  } catch (const Corruption& error) {
    EXPECT_STREQ(
        error.what(),
        "record /r: line 2: not a line of JSON; the record is damaged: move it away, and a "
        "resume goes on without its history");
  }
  EXPECT_THROW((void)read_bytes("\n"), Corruption);
}

TEST(Reader, ContentsThatNoRunWritesAreImpossible) {
  const Entry start{0, RunStart{}};
  const auto step = [](int64_t number) { return Entry{0, Step{.step = number}}; };
  const auto error = [](const std::vector<Entry>& entries) -> std::string {
    try {
      require_possible(entries, "record r");
    } catch (const Corruption& corruption) {
      return corruption.what();
    }
    return "";
  };
  EXPECT_EQ(error({start}), "");
  EXPECT_EQ(error({start, step(1), step(2), start, step(3)}), "");
  EXPECT_EQ(error({start, step(3)}), "");  // its first lines were lost, and the run went on
  EXPECT_EQ(error({}), "record r: has no line; name a run that has begun");
  EXPECT_EQ(error({step(1)}),
            "record r: line 1: is no run_start, with which the record of a run begins; lines were "
            "cut off or mixed: put the whole file back");
  EXPECT_EQ(error({start, step(1), step(2), start, step(2)}),
            "record r: line 5: step 2 comes after step 2, and a run does each once; lines of two "
            "records were mixed: put the file back");
  EXPECT_NE(error({start, step(0)}).find("step 0 comes after step 0"), std::string::npos);
}

TEST(Reader, AMissingFileIsAnIoError) {
  MemoryFiles files;
  EXPECT_THROW((void)read("/r", files), IoError);
}

}  // namespace
}  // namespace mantissa::record
