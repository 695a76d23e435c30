#include "mantissa/report/chart.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mantissa::report {
namespace {

using ::testing::HasSubstr;

LineChart lines() {
  LineChart chart{.id = "loss", .title = "Loss", .y = "bits"};
  Line line{.name = "a", .color = 2};
  line.points = {{1, 2.0000001, 2, 2}, {2, std::nan(""), 0, 0}, {3, 1.5, 1.5, 1.5}};
  chart.lines.push_back(line);
  return chart;
}

TEST(Chart, LinesAreJsonOfSixDigitsWithGaps) {
  EXPECT_EQ(to_json(Chart(lines())),
            R"({"kind":"lines","x":"step","y":"bits","scale":"linear","quantity":"number",)"
            R"("lines":[{"name":"a","color":2,"style":"line","x":[1,2,3],"y":[2.0,null,1.5]}],)"
            R"("id":"loss"})");
}

TEST(Chart, ABandIsWrittenWhereThereIsOne) {
  LineChart chart = lines();
  chart.lines[0].has_band = true;
  EXPECT_THAT(to_json(Chart(chart)), HasSubstr(R"("low":[2,0,1.5],"high":[2,0,1.5])"));
}

TEST(Chart, StepsStayWhole) {
  LineChart chart = lines();
  chart.lines[0].points = {{123456789, 0.1234567, 0, 0}};
  EXPECT_THAT(to_json(Chart(chart)), HasSubstr(R"("x":[123456789],"y":[0.123457])"));
}

TEST(Chart, FiguresOfALineSayItsCourse) {
  const Table table = figures_of(Chart(lines()));
  EXPECT_EQ(table.id, "loss-figures");
  ASSERT_EQ(table.rows.size(), 1U);
  std::vector<std::string> texts;
  for (const Cell& cell : table.rows[0]) {
    texts.push_back(cell.text);
  }
  EXPECT_THAT(texts, ::testing::ElementsAre("a", "2", "2", "1.5", "1.5", "2", "1"));
}

TEST(Chart, FiguresOfBarsHaveTheirTotal) {
  BarChart chart{.id = "bytes", .title = "Bytes", .quantity = Quantity::bytes};
  chart.bars = {"a"};
  chart.parts = {{"weights", {1000}}, {"other", {500}}};
  const Table table = figures_of(Chart(chart));
  EXPECT_EQ(table.rows[0].back().text, "1.50 kB");
  EXPECT_THAT(to_json(Chart(chart)), HasSubstr(R"({"name":"weights","values":[1000]})"));
}

TEST(Chart, FiguresOfAGridHaveTheWorstOfEachRow) {
  HeatMap chart{.id = "heat", .title = "Heat"};
  Grid grid{.name = "run", .rows = {"x", "y", "z"}, .columns = {"10", "20"}};
  const double nan = std::nan("");
  grid.measures = {{"headroom", "bits", 0, 24, {{5, 3}, {nan, 7}, {nan, nan}}},
                   {"zero", "%", 100, 0, {{5, 3}, {nan, 7}, {0, 0}}}};
  chart.grids.push_back(grid);
  const Table table = figures_of(Chart(chart));
  ASSERT_EQ(table.rows.size(), 5U);
  EXPECT_EQ(table.rows[0][3].text, "3 bits");
  EXPECT_EQ(table.rows[0][4].text, "20");
  EXPECT_EQ(table.rows[1][3].text, "7 bits");
  EXPECT_EQ(table.rows[2][3].text, "5 %");
  EXPECT_EQ(table.rows[2][4].text, "10");
}

TEST(Chart, QuantitiesReadAsElsewhere) {
  EXPECT_EQ(quantity_text(Quantity::seconds, 0.0123), "12.3 ms");
  EXPECT_EQ(quantity_text(Quantity::bytes, 4.56e6), "4.56 MB");
  EXPECT_EQ(quantity_text(Quantity::scale, 65536), "2^16");
  EXPECT_EQ(quantity_text(Quantity::percent, 45.678), "45.7 %");
  EXPECT_EQ(quantity_text(Quantity::number, 0.123456789), "0.12346");
}

}  // namespace
}  // namespace mantissa::report
