#include "mantissa/train/machine.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

namespace mantissa::train {
namespace {

TEST(Machine, EnvironmentNamesWhatABitEqualResumeDependsOn) {
  const auto values = environment();
  for (const char* key : {"mantissa", "libtorch", "cpu", "threads"}) {
    ASSERT_TRUE(values.contains(key)) << key;
    EXPECT_FALSE(values.at(key).empty()) << key;
  }
  EXPECT_EQ(values.at("threads"), std::to_string(at::get_num_threads()));
  EXPECT_EQ(values.at("libtorch").substr(0, 2), "2.");
}

}  // namespace
}  // namespace mantissa::train
