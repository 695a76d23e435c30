#include "mantissa/genome/line_reader.h"

#include <vector>

#include <gmock/gmock.h>
#include <htslib/bgzf.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/base/scratch_folder.h"

namespace mantissa::genome {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> lines_of(const std::filesystem::path& path) {
  LineReader reader(path, "vcf");
  std::vector<std::string> lines;
  for (std::string line; reader.next(line);) {
    lines.push_back(line);
  }
  return lines;
}

// `mode` is "w" for bgzip, "wg" for plain gzip.
void write_compressed(const std::filesystem::path& path, std::string_view text, const char* mode) {
  BGZF* file = bgzf_open(path.c_str(), mode);
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(bgzf_write(file, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  ASSERT_EQ(bgzf_close(file), 0);
}

TEST(LineReader, ReadsPlainGzipAndBgzipAlike) {
  const ScratchFolder folder;
  // A line longer than a buffer, one that ends with it, empty ones, none at the end.
  const std::string long_line(200000, 'x');
  const std::string fits(65535, 'y');
  const std::string text = fits + "\n" + long_line + "\n\na\r\nlast";
  const auto plain = folder.write("x", text);
  write_compressed(folder / "x.gz", text, "wg");
  write_compressed(folder / "x.bgz", text, "w");
  for (const char* name : {"x", "x.gz", "x.bgz"}) {
    EXPECT_THAT(lines_of(folder / name), ElementsAre(fits, long_line, "", "a\r", "last")) << name;
  }
  EXPECT_THAT(lines_of(folder.write("y", "a\n\n")), ElementsAre("a", ""));
  EXPECT_THAT(lines_of(folder.write("z", "")), ElementsAre());
}

TEST(LineReader, CountsLinesAndLooksAhead) {
  const ScratchFolder folder;
  LineReader reader(folder.write("x.vcf", "abc\ndef\n"), "gff");
  EXPECT_TRUE(reader.begins_with("abc\nd"));
  EXPECT_FALSE(reader.begins_with("abd"));
  std::string line;
  EXPECT_TRUE(reader.next(line));
  EXPECT_TRUE(reader.next(line));
  EXPECT_EQ(line, "def");
  EXPECT_EQ(reader.where(), "gff " + (folder / "x.vcf").string() + ":2");
  EXPECT_FALSE(reader.next(line));
}

TEST(LineReader, RefusesWhatIsNoFileOrCutOff) {
  const ScratchFolder folder;
  EXPECT_EQ(message_of<IoError>([&] { lines_of(folder / "none"); }),
            "vcf " + (folder / "none").string() + ": no such file; check the path");
  EXPECT_THAT(message_of<IoError>([&] { lines_of(folder.path()); }), HasSubstr("is a folder"));
  std::string text;
  for (int i = 0; i < 50000; ++i) {
    text += std::to_string(i * 7919 % 65537) + "\n";
  }
  write_compressed(folder / "x.gz", text, "wg");
  write_compressed(folder / "x.bgz", text, "w");
  const std::string gzip = folder.read("x.gz");
  const std::string bgzip = folder.read("x.bgz");
  EXPECT_THAT(message_of<Corruption>(
                  [&] { lines_of(folder.write("cut.gz", gzip.substr(0, gzip.size() / 2))); }),
              HasSubstr("damaged or cut off"));
  EXPECT_THAT(message_of<Corruption>(
                  [&] { lines_of(folder.write("cut.bgz", bgzip.substr(0, bgzip.size() / 2))); }),
              HasSubstr("cut off"));
}

}  // namespace
}  // namespace mantissa::genome
