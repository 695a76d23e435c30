#include "mantissa/checkpoint/reader.h"

#include <string>

#include <gmock/gmock.h>

#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"
#include "mantissa/base/memory_files.h"
#include "mantissa/base/message_of.h"
#include "mantissa/checkpoint/example_checkpoint.h"
#include "mantissa/checkpoint/writer.h"

namespace mantissa::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ReaderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    write("/d", example_checkpoint(1), {}, files_);
    write("/d", example_checkpoint(2), {}, files_);
  }

  MemoryFiles files_;
};

TEST_F(ReaderTest, ReadsAllOfTheLatest) {
  const Loaded loaded = read_latest("/d", files_);
  EXPECT_TRUE(same(loaded.checkpoint, example_checkpoint(2)));
  EXPECT_FALSE(same(loaded.checkpoint, example_checkpoint(1)));
  EXPECT_EQ(loaded.folder, "/d/step-2");
  EXPECT_THAT(loaded.messages, IsEmpty());
  EXPECT_EQ(files_.num_open(), 0U);
}

TEST_F(ReaderTest, ReadsAFolderThatIsNamedOrRenamedByItsUser) {
  EXPECT_TRUE(same(read("/d/step-1", files_).checkpoint, example_checkpoint(1)));
  rename_path("/d/step-1", "/d/good", files_);
  EXPECT_TRUE(same(read("/d/good", files_).checkpoint, example_checkpoint(1)));
  rename_path("/d/good", "/d/step-5", files_);
  EXPECT_EQ(message_of<Corruption>([&] { return read("/d/step-5", files_); }),
            "checkpoint /d/step-5: holds step 1, not that of its name; rename it to step-1");
}

TEST_F(ReaderTest, WalksBackAndSaysWhy) {
  files_.bytes("/d/step-2/tensors.safetensors").back() ^= 1;
  const Loaded loaded = read_latest("/d", files_);
  EXPECT_TRUE(same(loaded.checkpoint, example_checkpoint(1)));
  ASSERT_EQ(loaded.messages.size(), 1U);
  EXPECT_THAT(loaded.messages[0],
              HasSubstr("checkpoint /d/step-2: tensor \"model.half\" has xxh3 "));
  EXPECT_THAT(loaded.messages[0], HasSubstr("the checkpoint is damaged, use another"));
}

TEST_F(ReaderTest, AMissingFolderOrPointerIsSaid) {
  remove_tree("/d/step-2", files_);
  EXPECT_THAT(read_latest("/d", files_).messages,
              ElementsAre("checkpoint /d/step-2: is missing, although \"latest\" names it; use "
                          "another checkpoint"));
  remove_tree("/d/latest", files_);
  const Loaded loaded = read_latest("/d", files_);
  EXPECT_THAT(loaded.messages,
              ElementsAre("checkpoint /d: has no file \"latest\"; taking the latest step"));
  EXPECT_TRUE(same(loaded.checkpoint, example_checkpoint(1)));
}

TEST_F(ReaderTest, NothingThereIsAnIoError) {
  EXPECT_FALSE(has_checkpoint("/none", files_));
  EXPECT_TRUE(has_checkpoint("/d", files_));
  EXPECT_EQ(message_of<IoError>([&] { return read_latest("/none", files_); }),
            "checkpoint /none: there is no checkpoint; train until one is saved, or give another "
            "folder");
  EXPECT_EQ(message_of<IoError>([&] { return read_best("/none", files_); }),
            "checkpoint /none: there is no checkpoint; train until one is saved, or give another "
            "folder");
  EXPECT_EQ(message_of<IoError>([&] { return read_best("/d", files_); }),
            "checkpoint /d: no checkpoint was marked as the best; use the latest (mantissa eval "
            "--checkpoint latest)");
}

TEST_F(ReaderTest, WhenNoneIsWholeEveryReasonIsGiven) {
  files_.bytes("/d/step-2/manifest.xxh3").clear();
  remove_tree("/d/step-1/manifest.json", files_);
  const std::string message = message_of<Corruption>([&] { return read_latest("/d", files_); });
  EXPECT_THAT(message, HasSubstr("checkpoint /d: none of 2 is whole (checkpoint /d/step-2: "
                                 "manifest.json has xxh3 "));
  EXPECT_THAT(message, HasSubstr(" | file /d/step-1/manifest.json: cannot open it"));
  EXPECT_THAT(message, HasSubstr("; restore one from a copy or begin a new run"));
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

TEST_F(ReaderTest, ACutFileIsNamedWithItsSizes) {
  std::string& bytes = files_.bytes("/d/step-2/tensors.safetensors");
  const size_t size = bytes.size();
  bytes.resize(100);
  EXPECT_EQ(message_of<Corruption>([&] { return read("/d/step-2", files_); }),
            "checkpoint /d/step-2: tensors.safetensors has 100 bytes, the manifest says " +
                std::to_string(size) + "; the checkpoint is damaged, use another");
  EXPECT_EQ(message_of<Corruption>([&] {
              verify("/d/step-2", files_);
              return 0;
            }),
            "checkpoint /d/step-2: tensors.safetensors has 100 bytes, the manifest says " +
                std::to_string(size) + "; the checkpoint is damaged, use another");
}

// A manifest that is consistent in itself, but of other tensors: not chance, but it must not crash.
TEST_F(ReaderTest, AManifestOfOtherTensorsIsRefused) {
  const std::string original = files_.bytes("/d/step-2/manifest.json");
  const auto message = [&](const std::string& from, const std::string& to) {
    std::string text = original;
    text.replace(text.find(from), from.size(), to);
    files_.bytes("/d/step-2/manifest.json") = text;
    files_.bytes("/d/step-2/manifest.xxh3") = hex(xxh3(text)) + "\n";
    return message_of<Corruption>([&] { return read("/d/step-2", files_); });
  };
  EXPECT_THAT(message("model.half", "model.full"), HasSubstr("tensor \"model.full\" is missing"));
  EXPECT_THAT(message("\"BF16\"", "\"F16\""), HasSubstr("tensor \"model.half\" is BF16 [2], the "
                                                        "manifest says otherwise"));
  EXPECT_THAT(message("\"scale\": {", "\"model.half\": {"),
              HasSubstr("\"model.half\" is a tensor and a scalar"));
}

}  // namespace
}  // namespace mantissa::checkpoint
