#include "mantissa/base/toml_advice.h"

#include <gtest/gtest.h>

namespace mantissa {
namespace {

TEST(TomlAdvice, KnowsWhatIsNoMistakeOfGrammar) {
  EXPECT_EQ(toml_advice("cannot redefine existing string 'mm'", "write it as TOML"),
            "a name is given once, keep one of them");
  EXPECT_EQ(toml_advice("'99999999999999999999' is not representable in 64 bits", "x"),
            "integers are -9223372036854775808 to 9223372036854775807, other numbers at most "
            "1.8e308");
  EXPECT_EQ(toml_advice("expected a value", "write it as TOML"), "write it as TOML");
}

}  // namespace
}  // namespace mantissa
