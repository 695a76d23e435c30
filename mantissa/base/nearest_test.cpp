#include "mantissa/base/nearest.h"

#include <gtest/gtest.h>

namespace mantissa {
namespace {

const std::vector<std::string> kFormats = {"fp32", "tf32", "bf16", "fp16"};

TEST(Nearest, FindsTheSmallestEditDistance) {
  EXPECT_EQ(nearest("fp61", kFormats), "fp32");
  EXPECT_EQ(nearest("bf1", kFormats), "bf16");
  EXPECT_EQ(nearest("train.stesp", {"train.seed", "train.steps"}), "train.steps");
}

TEST(Nearest, LooksPastTheCase) {
  EXPECT_EQ(nearest("FP16", kFormats), "fp16");
  EXPECT_EQ(nearest("TF32", kFormats), "tf32");
  EXPECT_EQ(nearest("blocks.0.a_Log", {"blocks.0.up", "blocks.0.A_log"}), "blocks.0.A_log");
}

TEST(Nearest, IsEmptyWhenNothingIsNear) {
  EXPECT_EQ(nearest("posit", kFormats), "");
  EXPECT_EQ(nearest("nosuchop", {"cauchy"}), "");
  EXPECT_EQ(nearest("mm", {"dot"}), "");
  EXPECT_EQ(nearest("", kFormats), "");
  EXPECT_EQ(nearest("x", {}), "");
}

TEST(Nearest, SuggestionListsAllWhenNothingIsNear) {
  EXPECT_EQ(suggestion("bf61", {"bf16"}), "; did you mean \"bf16\"?");
  EXPECT_EQ(suggestion("posit", {"fp32", "bf16"}), "; valid: fp32 bf16");
}

}  // namespace
}  // namespace mantissa
