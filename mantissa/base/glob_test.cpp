#include "mantissa/base/glob.h"

#include <gtest/gtest.h>

namespace mantissa {
namespace {

TEST(Glob, StarCrossesDotsAndMayBeEmpty) {
  EXPECT_TRUE(glob_match("*", ""));
  EXPECT_TRUE(glob_match("*.bias", "blocks.0.qkv.bias"));
  EXPECT_TRUE(glob_match("blocks.*.norm*", "blocks.3.norm1.weight"));
  EXPECT_TRUE(glob_match("a*b*c", "aXbXbc"));
  EXPECT_FALSE(glob_match("*.bias", "bias"));
}

TEST(Glob, MatchesTheWholeText) {
  EXPECT_TRUE(glob_match("head", "head"));
  EXPECT_FALSE(glob_match("head", "head.weight"));
  EXPECT_FALSE(glob_match("head", "the head"));
  EXPECT_FALSE(glob_match("", "x"));
}

TEST(Glob, QuestionMarkIsOneCharacter) {
  EXPECT_TRUE(glob_match("norm?", "norm1"));
  EXPECT_FALSE(glob_match("norm?", "norm"));
  EXPECT_FALSE(glob_match("norm?", "norm12"));
}

}  // namespace
}  // namespace mantissa
