#include "mantissa/base/name_list.h"

#include <gmock/gmock.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"

namespace mantissa {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(NameList, CutsAtCommas) {
  EXPECT_THAT(parse_names("--x", "a"), ElementsAre("a"));
  EXPECT_THAT(parse_names("--x", "a,b c,d=1"), ElementsAre("a", "b c", "d=1"));
  EXPECT_THAT(parse_names("--x", std::vector<std::string>{"a,b", "c"}), ElementsAre("a", "b", "c"));
  EXPECT_THAT(parse_names("--x", std::vector<std::string>()), IsEmpty());
}

TEST(NameList, RefusesEmptyAndRepeatedNames) {
  const auto refusal = [](const std::vector<std::string>& texts) {
    return message_of<InvalidArgument>([&] { (void)parse_names("--x", texts); });
  };
  for (const std::string text : {"", ",", "a,", ",a", "a,,b"}) {
    EXPECT_EQ(refusal({"z", text}),
              "--x: \"" + text + "\" has an empty name; write one comma between two names");
  }
  EXPECT_EQ(refusal({"a,b,a"}), "--x: \"a\" is named twice; name each once");
  EXPECT_EQ(refusal({"a,b", "b"}), "--x: \"b\" is named twice; name each once");
}

}  // namespace
}  // namespace mantissa
