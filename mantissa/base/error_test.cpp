#include "mantissa/base/error.h"

#include <gtest/gtest.h>

namespace mantissa {
namespace {

TEST(Error, CheckThrowsTheKindWithTheJoinedMessage) {
  try {
    MANTISSA_CHECK(1 + 1 == 3, InvalidArgument, "policy: unknown format ", 61, "; valid: fp32");
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "policy: unknown format 61; valid: fp32");
  }
}

TEST(Error, EveryKindIsAnError) {
  EXPECT_THROW(throw Unsupported("x"), Error);
  EXPECT_THROW(throw IoError("x"), Error);
  EXPECT_THROW(throw Corruption("x"), Error);
}

TEST(Error, AssertNamesTheConditionAndTheFile) {
  try {
    MANTISSA_ASSERT(2 < 1);
    FAIL() << "expected Error";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("internal error: 2 < 1 does not hold (error_test.cpp:"),
              std::string::npos)
        << message;
  }
}

}  // namespace
}  // namespace mantissa
