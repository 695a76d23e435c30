#include "mantissa/report/section.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mantissa/report/curves.h"
#include "mantissa/report/report.h"
#include "mantissa/report/section_testing.h"

namespace mantissa::report {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

record::Step with_gradients(int64_t step, double scale, double largest) {
  record::Step result;
  result.step = step;
  result.scale = scale;
  for (const char* parameter : {"blocks.2.weight", "blocks.10.weight", "blocks.10.bias"}) {
    result.gradients[parameter] = {{"norm", 1},         {"largest", largest}, {"zeros", 0},
                                   {"non_finite", 0},   {"fp16_zero", 0.25},  {"fp16_subnormal", 0},
                                   {"fp16_infinite", 0}};
  }
  return result;
}

TEST(Sections, OnesWithoutDataAreAbsent) {
  report::Run run;  // a record with a start alone
  run.name = "a";
  run.starts.emplace_back();
  const Report report = make_report({run});
  std::vector<std::string> ids;
  for (const Section& section : report.sections) {
    ids.push_back(section.id);
  }
  EXPECT_THAT(ids, ElementsAre("comparison", "reproduction"));
}

TEST(Sections, APlainRunHasNeitherScaleNorGradientsNorMessages) {
  const Report report = make_report({example_run("a", "fp32", 1)});
  std::vector<std::string> ids;
  for (const Section& section : report.sections) {
    ids.push_back(section.id);
  }
  EXPECT_THAT(
      ids, ElementsAre("comparison", "learning", "speed", "memory", "optimizer", "reproduction"));
}

TEST(Curves, AGroupIsItsMeanAndABandFromSmallestToLargest) {
  const Material material = material_of({example_run("a", "fp32", 1), example_run("b", "fp32", 3)});
  const std::vector<Line> lines = group_lines(
      material,
      {{{1, 10}, {2, std::nan("")}, {3, std::nan("")}}, {{1, 20}, {2, 5}, {3, INFINITY}}});
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_TRUE(lines[0].has_band);
  ASSERT_EQ(lines[0].points.size(), 3U);
  EXPECT_EQ(lines[0].points[0], (Point{1, 15, 10, 20}));
  EXPECT_EQ(lines[0].points[1], (Point{2, 5, 5, 5}));
  EXPECT_TRUE(std::isnan(lines[0].points[2].y));
  EXPECT_THAT(band_sentence(material), HasSubstr("the band goes from"));
}

TEST(Curves, AGroupWithoutValuesHasNoLine) {
  const Material material = material_of({example_run("a", "fp32", 1), example_run("b", "bf16", 3)});
  const std::vector<Line> lines = group_lines(material, {{}, {{1, 1.0}}});
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].name, "b");
  EXPECT_EQ(lines[0].color, 1U);
  EXPECT_FALSE(lines[0].has_band);
  EXPECT_EQ(band_sentence(material), "");
}

TEST(ComparisonSection, HasARowARunAndOneAGroup) {
  const Section section =
      comparison_section(material_of({example_run("a", "fp32", 1), example_run("b", "fp32", 3)}));
  ASSERT_EQ(section.tables.size(), 2U);
  EXPECT_THAT(column(section.tables[0], 0), ElementsAre("a", "b"));
  EXPECT_THAT(column(section.tables[1], 0), ElementsAre("fp32 (2 runs)"));
  EXPECT_THAT(column(section.tables[1], 2), ElementsAre("1.9200"));
  EXPECT_THAT(column(section.tables[1], 5), ElementsAre("0.0141"));
}

TEST(ComparisonSection, SaysWhichPrecisionWasSlowerByTheMedianOverSeeds) {
  const Section section =
      comparison_section(material_of({example_run("a", "fp32", 1), example_run("b", "bf16", 1),
                                      example_run("c", "fp32", 3), example_run("d", "bf16", 7)}));
  EXPECT_THAT(section.prose,
              ElementsAre("bf16 is slower here: its steps took 2.00 times those of fp32"));
}

TEST(ComparisonSection, SaysThatModelsDiffer) {
  report::Run large = example_run("b", "bf16", 1);
  large.summary->params = 200;
  const Section section = comparison_section(material_of({example_run("a", "fp32", 1), large}));
  EXPECT_THAT(section.prose, ElementsAre(HasSubstr("differ in their number of parameters")));
}

TEST(ComparisonSection, AnUnfinishedRunSaysSo) {
  report::Run run = example_run("a", "fp32", 1);
  run.summary.reset();
  const Section section = comparison_section(material_of({run}));
  EXPECT_THAT(column(section.tables[0], 4), ElementsAre("not ended"));
  EXPECT_THAT(column(section.tables[0], 5), ElementsAre("-"));
}

TEST(LearningSection, DrawsTheMarkovModelWhereItIsOneNumber) {
  report::Run other = example_run("b", "bf16", 1);
  const auto lines_of = [](const Section& section) {
    return std::get<LineChart>(section.charts.at(0)).lines;
  };
  std::vector<Line> lines =
      lines_of(learning_section(material_of({example_run("a", "fp32", 1), other})));
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[2].name, "best Markov model");
  EXPECT_EQ(lines[2].points.at(1), (Point{3, 1.978, 1.978, 1.978}));
  other.summary->markov_bits_per_base = 1.5;
  lines = lines_of(learning_section(material_of({example_run("a", "fp32", 1), other})));
  EXPECT_EQ(lines.size(), 2U);
}

TEST(SpeedSection, TellsTheWaitFromTheRest) {
  report::Run run = example_run("a", "fp32", 1);
  EXPECT_THAT(speed_section(material_of({run})).prose, ElementsAre("No step waited for its data."));
  for (record::Step& step : run.steps) {
    step.data_wait_s = 0.0025;
  }
  const Section section = speed_section(material_of({run}));
  ASSERT_EQ(section.charts.size(), 3U);
  const BarChart& split = std::get<BarChart>(section.charts[1]);
  EXPECT_NEAR(split.parts.at(0).values.at(0), 0.0075, 1e-12);
  EXPECT_NEAR(split.parts.at(1).values.at(0), 0.0025, 1e-12);
  EXPECT_THAT(column(section.tables.at(0), 7), ElementsAre("25 %"));
}

TEST(MemorySection, StacksCategoriesInTheirOrder) {
  report::Run run = example_run("a", "fp32", 1);
  run.summary->peak_bytes["new kind"] = 7;
  run.summary->peak_holders = {{"a small one", 10}, {"the large one", 20}};
  report::Run unfinished = example_run("b", "fp32", 2);
  unfinished.summary.reset();
  const Section section = memory_section(material_of({run, unfinished}));
  const BarChart& chart = std::get<BarChart>(section.charts.at(0));
  std::vector<std::string> parts;
  for (const BarPart& part : chart.parts) {
    parts.push_back(part.name);
  }
  EXPECT_THAT(parts, ElementsAre("weights", "activations", "new kind", "all"));
  EXPECT_THAT(chart.parts[3].values, ElementsAre(0, 5000));
  EXPECT_THAT(column(section.tables.at(1), 1), ElementsAre("the large one", "a small one"));
}

TEST(ScaleSection, MarksSkippedStepsWithTheirReasons) {
  report::Run run = example_run("a", "fp16", 1);
  run.steps[0].scale = 65536;
  run.steps[1].scale = 65536;
  run.steps[1].skipped = true;
  run.steps[2].scale = 32768;
  run.messages = {{2, record::Level::info, "step 2 skipped: inf from head"},
                  {2, record::Level::info, "step 3 skipped: not its own step"}};
  const Section section = scale_section(material_of({example_run("b", "fp32", 1), run}));
  const LineChart& chart = std::get<LineChart>(section.charts.at(0));
  ASSERT_EQ(chart.lines.size(), 2U);
  EXPECT_EQ(chart.lines[0].style, LineStyle::stairs);
  EXPECT_EQ(chart.lines[0].points.size(), 3U);
  EXPECT_EQ(chart.lines[1].style, LineStyle::crosses);
  EXPECT_THAT(chart.lines[1].points, ElementsAre(Point{2, 65536, 65536, 65536}));
  EXPECT_THAT(column(section.tables.at(0), 1), ElementsAre("2"));
  EXPECT_THAT(column(section.tables.at(0), 4), ElementsAre("inf from head"));
  // They are not repeated among the messages.
  EXPECT_THAT(column(messages_section(material_of({run})).tables.at(0), 3),
              ElementsAre("step 3 skipped: not its own step"));
}

TEST(ScaleSection, OfManySkippedStepsTheFirstAreListed) {
  report::Run run = example_run("a", "fp16", 1, 5000);
  for (record::Step& step : run.steps) {
    step.skipped = true;
  }
  const Section section = scale_section(material_of({run}));
  EXPECT_EQ(section.tables.at(0).rows.size(), 2000U);
  EXPECT_EQ(section.tables.at(0).caption, "Skipped steps: the first 2000 of each run, 5000 in all");
  EXPECT_LE(std::get<LineChart>(section.charts.at(0)).lines.at(1).points.size(), 3000U);
}

TEST(MessagesSection, OfTooManyTheWarningsStay) {
  report::Run run = example_run("a", "fp32", 1);
  for (int64_t i = 0; i < 3000; ++i) {
    run.messages.push_back({i, record::Level::info, "text"});
  }
  run.messages.push_back({3000, record::Level::warning, "look here"});
  const Table table = messages_section(material_of({run})).tables.at(0);
  EXPECT_EQ(table.rows.size(), 2000U);
  EXPECT_EQ(table.rows.front().at(3).text, "look here");
  EXPECT_EQ(table.caption, "Messages: at most 2000 of each run, warnings first, of 3001");
}

TEST(GradientsSection, HeadroomIsBitsToTheLargestFp16Number) {
  report::Run run = example_run("a", "fp16", 1);
  run.steps = {with_gradients(10, 1024, 1), with_gradients(20, 65536, 0.5)};
  const Section section = gradients_section(material_of({example_run("b", "fp32", 1), run}));
  const HeatMap& map = std::get<HeatMap>(section.charts.at(0));
  ASSERT_EQ(map.grids.size(), 1U);
  const Grid& grid = map.grids[0];
  EXPECT_THAT(grid.rows, ElementsAre("blocks.2", "blocks.10"));
  EXPECT_THAT(grid.columns, ElementsAre("10", "20"));
  ASSERT_EQ(grid.measures.size(), 2U);  // what is 0 everywhere is left out
  EXPECT_NEAR(grid.measures[0].values[0][0], std::log2(65504.0 / 1024), 1e-12);
  EXPECT_NEAR(grid.measures[0].values[1][1], std::log2(65504.0 / 32768), 1e-12);
  EXPECT_EQ(grid.measures[1].values[0][0], 25);
  const Table& table = section.tables.at(0);
  EXPECT_THAT(column(table, 1),
              ElementsAre("blocks.2.weight", "blocks.10.bias", "blocks.10.weight"));
  EXPECT_THAT(column(table, 2), ElementsAre("1.0", "1.0", "1.0"));
  EXPECT_THAT(column(table, 3), ElementsAre("20", "20", "20"));
}

TEST(GradientsSection, ADeadGradientHasNoHeadroom) {
  report::Run run = example_run("a", "fp16", 1);
  run.steps = {with_gradients(10, 1, 0)};
  const Section section = gradients_section(material_of({run}));
  EXPECT_TRUE(
      std::isnan(std::get<HeatMap>(section.charts.at(0)).grids[0].measures[0].values[0][0]));
  EXPECT_THAT(column(section.tables.at(0), 2), ElementsAre("-", "-", "-"));
}

TEST(GradientsSection, AThousandLayersAreNeighboursTogether) {
  report::Run run = example_run("a", "fp16", 1);
  run.steps.clear();
  for (int64_t i = 1; i <= 300; ++i) {
    record::Step step;
    step.step = i;
    for (int layer = 0; layer < 1000; ++layer) {
      // One cell is worse than all others; a picture must not lose it.
      const double largest = layer == 777 && i == 123 ? 60000 : 1;
      step.gradients["blocks." + std::to_string(layer) + ".weight"] = {{"norm", 1},
                                                                       {"largest", largest}};
    }
    run.steps.push_back(std::move(step));
  }
  const Section section = gradients_section(material_of({run}));
  const Grid& grid = std::get<HeatMap>(section.charts.at(0)).grids.at(0);
  EXPECT_LE(grid.rows.size(), 80U);
  EXPECT_LE(grid.columns.size(), 80U);
  EXPECT_EQ(grid.rows[0], "blocks.0 to blocks.12");
  EXPECT_EQ(grid.columns[0], "1 to 4");
  double least = std::numeric_limits<double>::infinity();
  for (const std::vector<double>& row : grid.measures.at(0).values) {
    least = std::min(least, *std::min_element(row.begin(), row.end()));
  }
  EXPECT_NEAR(least, std::log2(65504.0 / 60000), 1e-12);
}

TEST(ReproductionSection, HasCommandsAndTheRunFile) {
  const Section section = reproduction_section(material_of(
      {example_run("it's", "fp32", 1), example_run("b", "bf16", 5), example_run("c", "bf16", 6)}));
  ASSERT_EQ(section.listings.size(), 2U);
  EXPECT_THAT(section.listings[0].text,
              HasSubstr("mantissa train again.toml --out 'runs/it'\\''s-again'\n"));
  EXPECT_THAT(section.listings[0].text, HasSubstr("[precision]\ncompute = 'fp32'\n"));
  EXPECT_THAT(section.listings[1].text,
              HasSubstr("for seed in 5 6; do\n  mantissa train again.toml --set "
                        "train.seed=\"$seed\" --out runs/b-again-\"$seed\"\ndone\n"));
  EXPECT_EQ(section.tables.at(0).id, "environment");
  EXPECT_EQ(section.tables.at(1).id, "settings");
}

}  // namespace
}  // namespace mantissa::report
