// No damage of any file of a checkpoint passes unseen.

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/memory_files.h"
#include "mantissa/checkpoint/example_checkpoint.h"
#include "mantissa/checkpoint/reader.h"
#include "mantissa/checkpoint/writer.h"

namespace mantissa::checkpoint {
namespace {

constexpr const char* kFiles[] = {"/d/step-2/tensors.safetensors", "/d/step-2/manifest.json",
                                  "/d/step-2/manifest.xxh3"};

class DamageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    write("/d", example_checkpoint(1), {}, files_);
    write("/d", example_checkpoint(2), {}, files_);
  }

  void expect_refused_and_earlier_one_loaded() {
    EXPECT_THROW((void)read("/d/step-2", files_), Error);
    EXPECT_THROW(verify("/d/step-2", files_), Error);
    const Loaded loaded = read_latest("/d", files_);
    EXPECT_TRUE(same(loaded.checkpoint, example_checkpoint(1)));
    EXPECT_FALSE(loaded.messages.empty());
  }

  MemoryFiles files_;
};

TEST_F(DamageTest, EveryFlippedBitIsDetected) {
  for (const char* file : kFiles) {
    std::string& bytes = files_.bytes(file);
    for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      SCOPED_TRACE(concat(file, ", bit ", bit));
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
      expect_refused_and_earlier_one_loaded();
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
    }
  }
  EXPECT_TRUE(same(read_latest("/d", files_).checkpoint, example_checkpoint(2)));
}

TEST_F(DamageTest, EveryCutIsDetected) {
  for (const char* file : kFiles) {
    std::string& bytes = files_.bytes(file);
    const std::string whole = bytes;
    for (size_t size = 0; size < whole.size(); ++size) {
      SCOPED_TRACE(concat(file, ", cut to ", size));
      bytes = whole.substr(0, size);
      expect_refused_and_earlier_one_loaded();
    }
    bytes = whole + "x";
    expect_refused_and_earlier_one_loaded();
    bytes = whole;
  }
}

TEST_F(DamageTest, EveryMissingFileIsDetected) {
  for (const char* file : kFiles) {
    const std::string whole = files_.bytes(file);
    remove_tree(file, files_);
    expect_refused_and_earlier_one_loaded();
    replace_file(file, whole, files_);
  }
}

// With a damaged pointer the latest step is found all the same, and the damage is said.
TEST_F(DamageTest, EveryFlippedBitOfThePointerIsSurvived) {
  std::string& bytes = files_.bytes("/d/latest");
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    SCOPED_TRACE(bit);
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
    const Loaded loaded = read_latest("/d", files_);
    EXPECT_TRUE(same(loaded.checkpoint, example_checkpoint(2)));
    EXPECT_EQ(loaded.messages.size(), 1U);
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
  }
}

// Two files damaged in the same way would be consistent, if one were only a copy of the other.
TEST_F(DamageTest, FilesOfAnotherStepDoNotPass) {
  for (const char* name : {"tensors.safetensors", "manifest.json", "manifest.xxh3"}) {
    const std::string path = std::string("/d/step-2/") + name;
    const std::string whole = files_.bytes(path);
    files_.bytes(path) = files_.bytes(std::string("/d/step-1/") + name);
    expect_refused_and_earlier_one_loaded();
    files_.bytes(path) = whole;
  }
}

}  // namespace
}  // namespace mantissa::checkpoint
