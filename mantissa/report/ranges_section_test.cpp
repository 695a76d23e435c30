#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>

#include "mantissa/report/html_page.h"
#include "mantissa/report/report.h"
#include "mantissa/report/section_testing.h"

namespace mantissa::report {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// 100 values: 10 of 2^-1, 90 of 2^1.
record::ValueRange range_of(const std::string& scope, double largest) {
  record::ValueRange range{
      .kind = "activation", .scope = scope, .name = "aten::mm", .format = "fp16"};
  range.count = 110;
  range.zeros = 8;
  range.nan = 2;
  range.smallest = 0.5;
  range.largest = largest;
  range.first_exponent = -1;
  range.exponents = {10, 0, 90};
  range.narrow = {{"fp16", {{"zero", 25}, {"subnormal", 0}, {"overflow", 0}}}};
  return range;
}

report::Run run_of(std::vector<record::Ranges> ranges) {
  report::Run run = example_run("a", "fp16", 1);
  run.ranges = std::move(ranges);
  return run;
}

TEST(RangesSection, IsAbsentWithoutRanges) {
  EXPECT_TRUE(ranges_section(material_of({example_run("a", "fp32", 1)})).is_empty());
}

TEST(RangesSection, DrawsSharesOfPowersOfTwoUnderTheFormats) {
  const Section section = ranges_section(material_of({run_of({{3, 1, {range_of("head", 2)}}})}));
  const LineChart& chart = std::get<LineChart>(section.charts.at(0));
  EXPECT_EQ(chart.id, "exponents-activation");
  const auto point = [](double x, double y) { return Point{x, y, y, y}; };
  EXPECT_THAT(chart.lines.at(0).points,
              ElementsAre(point(-1, 0), point(-1, 10), point(0, 0), point(1, 90), point(2, 0)));
  ASSERT_EQ(chart.spans.size(), 4U);
  EXPECT_EQ(chart.spans[1].name, "fp16");
  EXPECT_EQ(chart.spans[1].low, -24);
  EXPECT_EQ(chart.spans[1].full, -14);
  EXPECT_NEAR(chart.spans[1].high, 16, 0.001);
  EXPECT_THAT(section.prose.at(1),
              HasSubstr("; fp8_e4m3 goes from -9 to 8.8, and is normal from -6;"));
}

TEST(RangesSection, HasTheHeadroomOfEachLayerAndStep) {
  const Section section = ranges_section(
      material_of({run_of({{3, 1, {range_of("blocks.10", 4), range_of("blocks.2", 16376)}},
                           {5, 1, {range_of("blocks.10", 8)}}})}));
  const HeatMap& map = std::get<HeatMap>(section.charts.back());
  ASSERT_EQ(map.grids.size(), 1U);
  EXPECT_EQ(map.grids[0].name, "a, activations");
  EXPECT_THAT(map.grids[0].rows, ElementsAre("blocks.2", "blocks.10"));
  EXPECT_THAT(map.grids[0].columns, ElementsAre("3", "5"));
  EXPECT_EQ(map.grids[0].measures[0].values[0][0], 2) << "65504 / 16376";
  EXPECT_TRUE(std::isnan(map.grids[0].measures[0].values[0][1]));
  const Table& table = section.tables.at(0);
  EXPECT_THAT(column(table, 2), ElementsAre("blocks.2", "blocks.10"));
  EXPECT_THAT(column(table, 7), ElementsAre("2.0", "13.0"));
  EXPECT_THAT(column(table, 10), ElementsAre("25 %", "25 %"));
  EXPECT_THAT(column(table, 13), ElementsAre("1.82 %", "1.82 %"));
}

TEST(RangesSection, AThousandLayersFitAPage) {
  std::vector<record::Ranges> steps;
  for (int64_t step = 1; step <= 20; ++step) {
    record::Ranges ranges{step, 1, {}};
    for (int layer = 0; layer < 1000; ++layer) {
      ranges.values.push_back(
          range_of("blocks." + std::to_string(layer), layer == 777 && step == 7 ? 60000 : 2));
    }
    steps.push_back(std::move(ranges));
  }
  const Report report = make_report({run_of(std::move(steps))});
  const auto found = std::find_if(report.sections.begin(), report.sections.end(),
                                  [](const Section& section) { return section.id == "ranges"; });
  ASSERT_NE(found, report.sections.end());
  const Grid& grid = std::get<HeatMap>(found->charts.back()).grids.at(0);
  EXPECT_LE(grid.rows.size(), 80U);
  double least = 99;
  for (const std::vector<double>& row : grid.measures.at(0).values) {
    least = std::min(least, *std::min_element(row.begin(), row.end()));
  }
  EXPECT_NEAR(least, std::log2(65504.0 / 60000), 1e-12) << "the one that is worse is not lost";
  EXPECT_EQ(found->tables.at(0).rows.size(), 1000U);
  EXPECT_LT(to_html(report, "mantissa report").size(), 2000000U);
}

}  // namespace
}  // namespace mantissa::report
