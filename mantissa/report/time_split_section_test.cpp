#include <gmock/gmock.h>

#include "mantissa/report/report.h"
#include "mantissa/report/section_testing.h"
#include "mantissa/report/speed_testing.h"

namespace mantissa::report {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

report::Run bf16_run() {
  report::Run run = example_run("narrow", "bf16", 2);
  run.time_splits = {narrow_split(), narrow_split()};
  return run;
}

const std::vector<Cell>& row_of(const Table& table, const std::string& name) {
  for (const std::vector<Cell>& row : table.rows) {
    if (row.front().text == name) {
      return row;
    }
  }
  throw std::runtime_error("no row " + name);
}

TEST(TimeSplitSection, IsAbsentInRecordsOfAnEarlierMantissa) {
  EXPECT_TRUE(time_split_section(material_of({example_run("a", "fp32", 1)})).is_empty());
}

TEST(TimeSplitSection, WithoutOperationsItHasPhasesAndNoCasts) {
  report::Run run = example_run("a", "fp32", 1);
  for (record::Step& step : run.steps) {
    step.phases = {{"data", 0.25}, {"forward", 0.25}, {"backward", 0.5}, {"other", 0}};
  }
  run.evaluations.front().duration_s = 0.01;  // beside 3 steps of 0.01 s
  const Section section = time_split_section(material_of({run}));
  ASSERT_EQ(section.tables.size(), 1U);
  const std::vector<Cell>& row = section.tables[0].rows.at(0);
  EXPECT_EQ(row.at(2).number, 1);
  EXPECT_EQ(row.at(3).number, 25);
  EXPECT_FALSE(row.at(6).number.has_value()) << "casts";
  EXPECT_EQ(row.back().number, 25) << "validation";
  const BarChart& chart = std::get<BarChart>(section.charts.at(0));
  ASSERT_EQ(chart.parts.size(), 3U) << "what takes no time is left out";
  EXPECT_EQ(chart.parts[0].name, "wait for data");
  EXPECT_THAT(chart.bars, ElementsAre("a"));
}

TEST(TimeSplitSection, HasTheSharesOfProductsAndCasts) {
  const Section section = time_split_section(material_of({bf16_run()}));
  const std::vector<Cell>& row = row_of(section.tables.at(0), "narrow");
  EXPECT_EQ(row.at(1).text, "2");
  EXPECT_EQ(row.at(6).number, 6.25) << "casts";
  EXPECT_EQ(row.at(10).number, 50) << "products";
  EXPECT_EQ(row.at(11).number, 50) << "in 16 bits";
}

TEST(TimeSplitSection, OperationsAreMeansOfTheStepsThatWereTimed) {
  const Section section = time_split_section(material_of({bf16_run()}));
  ASSERT_EQ(section.tables.size(), 2U);
  const Table& table = section.tables[1];
  EXPECT_EQ(table.id, "operations");
  ASSERT_EQ(table.rows.size(), 5U);
  const std::vector<Cell>& first = table.rows.front();
  EXPECT_EQ(first.at(1).text, "aten::mm");
  EXPECT_EQ(first.at(4).text, "bf16");
  EXPECT_EQ(first.at(5).text, "4");
  EXPECT_EQ(first.at(6).number, 0.375);
  EXPECT_EQ(first.at(7).number, 37.5);
  EXPECT_NEAR(first.at(8).number.value(), 1 / 0.375, 1e-12);
  EXPECT_EQ(first.at(9).text, "yes");
  EXPECT_THAT(column(table, 11), Contains("kind"));
}

TEST(TimeSplitSection, SaysWhyARunIsAsFastAsItIsBesideFp32) {
  report::Run narrow = bf16_run();  // 0.02 s a step
  for (record::TimeSplit& split : narrow.time_splits) {
    split.phases["data"] += 1;
    split.step_time_s += 1;
  }
  const Section alone = time_split_section(material_of({narrow}));
  EXPECT_TRUE(alone.prose.empty()) << "nothing to be faster than";
  const Section beside = time_split_section(material_of({example_run("wide", "fp32", 1), narrow}));
  ASSERT_EQ(beside.prose.size(), 1U);
  EXPECT_THAT(beside.prose[0], HasSubstr("narrow: input-bound: 50 % of a step waits for data"));
  const Section faster = time_split_section(material_of({example_run("wide", "fp32", 9), narrow}));
  EXPECT_THAT(faster.prose[0], HasSubstr("narrow: as fast as can be expected"));
}

TEST(TimeSplitSection, IsPartOfTheReport) {
  const Report report = make_report({bf16_run()});
  EXPECT_EQ(table_of(report, "time-split").rows.size(), 1U);
  EXPECT_EQ(table_of(report, "operations").rows.size(), 5U);
}

}  // namespace
}  // namespace mantissa::report
