#include "mantissa/report/heat_grid.h"

#include <cmath>

#include <gmock/gmock.h>

namespace mantissa::report {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(Neighbours, AreAtMostSoManyRunsOfEqualLength) {
  EXPECT_THAT(neighbours(3, 5), ElementsAre(Pair(0, 1), Pair(1, 2), Pair(2, 3)));
  EXPECT_THAT(neighbours(5, 2), ElementsAre(Pair(0, 3), Pair(3, 5)));
  EXPECT_TRUE(neighbours(0, 4).empty());
}

TEST(HeatGrid, KeepsTheWorstOfWhatSharesACell) {
  HeatGrid grid("run", {"a", "b", "c"}, {1, 2},
                {{"headroom", "bits", 0, 24, {}}, {"share", "%", 100, 0, {}}}, 2);
  grid.put("a", 0, 0, 5);
  grid.put("b", 0, 0, 3);  // a neighbour of a
  grid.put("c", 1, 0, std::nan(""));
  grid.put("a", 0, 1, 10);
  grid.put("a", 0, 1, 20);
  const Grid result = grid.take();
  EXPECT_THAT(result.rows, ElementsAre("a to b", "c"));
  EXPECT_THAT(result.columns, ElementsAre("1", "2"));
  ASSERT_EQ(result.measures.size(), 2U);
  EXPECT_EQ(result.measures[0].values[0][0], 3);
  EXPECT_TRUE(std::isnan(result.measures[0].values[1][1]));
  EXPECT_EQ(result.measures[1].values[0][0], 20);
}

TEST(HeatGrid, LeavesOutSharesThatAreZeroEverywhere) {
  HeatGrid grid("run", {"a"}, {1}, {{"headroom", "bits", 0, 24, {}}, {"share", "%", 100, 0, {}}},
                2);
  grid.put("a", 0, 1, 0);
  EXPECT_EQ(grid.take().measures.size(), 1U);
}

}  // namespace
}  // namespace mantissa::report
