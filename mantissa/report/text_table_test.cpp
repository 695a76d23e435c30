#include "mantissa/report/text_table.h"

#include <gtest/gtest.h>

namespace mantissa::report {
namespace {

TEST(TextTable, AlignsTheFirstColumnLeftAndTheOthersRight) {
  EXPECT_EQ(text_table({{"", "fp32", "bf16"}, {"step time", "9.1 ms", "10.25 ms"}, {"scale", "1"}}),
            "             fp32      bf16\n"
            "step time  9.1 ms  10.25 ms\n"
            "scale           1\n");
}

TEST(TextTable, CountsCharactersAndAlignsAsTold) {
  EXPECT_EQ(text_table({{"\xC3\xA4", "b", "c"}, {"1", "22", "33"}}, {false, true, false}),
            "\xC3\xA4  b    c\n"
            "1  22  33\n");
}

TEST(TextTable, OfNothingIsEmpty) { EXPECT_EQ(text_table({}), ""); }

}  // namespace
}  // namespace mantissa::report
