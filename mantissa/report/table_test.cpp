#include "mantissa/report/table.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mantissa::report {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Table example() {
  Table table{.id = "times", .caption = "Times"};
  table.columns = {{"run"}, {"time", true}};
  table.rows = {{text_cell("a,\"b\"\n"), number_cell(0.1, "100 ms")},
                {text_cell("c"), number_cell(std::nan(""), "nan s")},
                {text_cell("d\x1b[31m"), number_cell(kInfinity, "inf")}};
  return table;
}

TEST(Table, TextIsAlignedAndHarmlessToATerminal) {
  EXPECT_EQ(to_text(example(), 10),
            "run       time\n"
            "a,\"b\"   100 ms\n"
            "c            -\n"
            "d [31m     inf\n");
}

TEST(Table, TextSaysHowManyRowsAreLeftOut) {
  EXPECT_THAT(to_text(example(), 1), ::testing::EndsWith("\n... 2 more rows: --table times\n"));
}

TEST(Table, CsvQuotesAndHasNumbersInFull) {
  EXPECT_EQ(to_csv(example()), "run,time\r\n\"a,\"\"b\"\"\n\",0.1\r\nc,\r\nd\x1b[31m,inf\r\n");
}

TEST(Table, JsonHasNumbersInFullAndNullForWhatIsNotKnown) {
  EXPECT_EQ(to_json(example()), R"({"id":"times","caption":"Times","columns":["run","time"],)"
                                R"("rows":[["a,\"b\"\n",0.1],["c",null],["d\u001b[31m","inf"]]})");
}

TEST(Table, JsonReplacesWhatIsNotUtf8) {
  Table table{.id = "x", .caption = "x", .columns = {{"run"}}};
  table.rows = {{text_cell("a\xFF")}};
  EXPECT_THAT(to_json(table), ::testing::HasSubstr("[[\"a\xEF\xBF\xBD\"]]"));
}

TEST(Table, DecimalsHaveAnExponentWhereDigitsWouldNotDo) {
  EXPECT_EQ(decimal_cell(1.97654, 4).text, "1.9765");
  EXPECT_EQ(decimal_cell(0, 4).text, "0.0000");
  EXPECT_EQ(decimal_cell(1.5e-7, 4).text, "1.5e-07");
  EXPECT_EQ(decimal_cell(-3e9, 1).text, "-3e+09");
  EXPECT_EQ(decimal_cell(std::nan(""), 1).text, "-");
}

}  // namespace
}  // namespace mantissa::report
