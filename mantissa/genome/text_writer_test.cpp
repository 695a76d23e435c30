#include "mantissa/genome/text_writer.h"

#include <gmock/gmock.h>

#include "mantissa/base/error.h"
#include "mantissa/base/faulty_files.h"
#include "mantissa/base/message_of.h"
#include "mantissa/base/scratch_folder.h"
#include "mantissa/genome/line_reader.h"

namespace mantissa::genome {
namespace {

using ::testing::HasSubstr;

std::string text_of(const std::filesystem::path& path) {
  LineReader reader(path, "vcf");
  std::string text;
  for (std::string line; reader.next(line);) {
    text += line + "\n";
  }
  return text;
}

TextWriter append(const std::filesystem::path& path, TextFormat format) {
  return {OutputFile(path, FileSystem::Open::append), format};
}

std::string some_lines() {
  std::string text;
  for (int i = 0; i < 30000; ++i) {
    text += std::to_string(i * 7919 % 65537) + "\n";
  }
  return text;
}

TEST(TextWriter, WritesPlainTextAndBgzip) {
  const ScratchFolder folder;
  const std::string text = some_lines();
  for (const TextFormat format : {TextFormat::plain, TextFormat::bgzip}) {
    TextWriter writer = append(folder / "x", format);
    for (size_t i = 0; i < text.size(); i += 777) {
      writer.write(std::string_view(text).substr(i, 777));
    }
    writer.finish();
    EXPECT_EQ(text_of(folder / "x"), text);
    if (format == TextFormat::bgzip) {
      EXPECT_EQ(folder.read("x").substr(0, 4), "\x1f\x8b\x08\x04");
      EXPECT_LT(folder.read("x").size(), text.size() * 3 / 4);
    }
    std::filesystem::remove(folder / "x");
  }
}

// The file is cut back to what flush() gave, as after a kill, and goes on from there.
TEST(TextWriter, GoesOnWhereItWasFlushed) {
  const ScratchFolder folder;
  const std::string text = some_lines();
  for (const TextFormat format : {TextFormat::plain, TextFormat::bgzip}) {
    int64_t size = 0;
    {
      TextWriter writer = append(folder / "x", format);
      writer.write(text.substr(0, 100000));
      size = writer.flush();
      EXPECT_EQ(writer.flush(), size);
      writer.write(text.substr(100000, 90000));  // is lost
    }
    OutputFile file(folder / "x", FileSystem::Open::append);
    EXPECT_GE(file.size_bytes(), size);
    file.truncate(size);
    TextWriter writer(std::move(file), format);
    writer.write(text.substr(100000));
    writer.finish();
    EXPECT_EQ(text_of(folder / "x"), text);
    std::filesystem::remove(folder / "x");
  }
}

TEST(TextWriter, SaysThatTheDiskIsFull) {
  const ScratchFolder folder;
  // Of the calls the first opens, the second asks for the size.
  FaultyFiles files(posix_files(), {.at_call = 2, .effect = Fault::Effect::disk_full});
  TextWriter writer(OutputFile(folder / "x", FileSystem::Open::append, files), TextFormat::plain);
  EXPECT_THAT(message_of<IoError>([&] {
                writer.write("abc");
                writer.flush();
              }),
              HasSubstr("No space left on device"));
}

}  // namespace
}  // namespace mantissa::genome
