#include "bench/row.h"

#include <cmath>

#include <gmock/gmock.h>

namespace mantissa::bench {
namespace {

TEST(Judge, IsOfTheLowerEnd) {
  EXPECT_EQ(judge({1.02, 1.0, 1.04}, 9, 1.0), Verdict::pass);
  EXPECT_EQ(judge({1.02, 0.99, 1.04}, 9, 1.0), Verdict::falls_short);
  EXPECT_EQ(judge({0.9, 0.89, 0.91}, 9, 1.0), Verdict::falls_short);
  EXPECT_EQ(judge({0.9, 0.89, 0.91}, 9, {}), Verdict::no_bar);
}

TEST(Judge, AWideIntervalNearTheBarIsUnclear) {
  EXPECT_EQ(judge({1.1, 1.01, 1.3}, 9, 1.0), Verdict::unclear);
  EXPECT_EQ(judge({0.9, 0.8, 0.99}, 9, 1.0), Verdict::unclear);
}

TEST(Judge, AWideIntervalFarFromTheBarIsClear) {
  EXPECT_EQ(judge({45, 40, 55}, 9, 10), Verdict::pass);
  EXPECT_EQ(judge({2, 1.8, 2.4}, 9, 10), Verdict::falls_short);
}

TEST(Judge, FewPairsAreUnclearNearTheBar) {
  EXPECT_EQ(judge({1.02, 1.01, 1.03}, 4, 1.0), Verdict::unclear);
  EXPECT_EQ(judge({1.02, 1.01, 1.03}, 5, 1.0), Verdict::pass);
  EXPECT_EQ(judge({1.32, 1.31, 1.33}, 3, 1.0), Verdict::pass);
  EXPECT_EQ(judge({0.72, 0.71, 0.73}, 3, 1.0), Verdict::falls_short);
}

TEST(Judge, NoNumberIsNoPass) { EXPECT_EQ(judge({NAN, NAN, NAN}, 9, 1.0), Verdict::falls_short); }

TEST(Bars, OfTheClass) {
  const Bars bars = {{0.95, 1.05}, {1.6, {}}};
  EXPECT_EQ(bars.of(CpuClass::avx2).least, 0.95);
  EXPECT_EQ(bars.of(CpuClass::avx512_bf16).least, 1.6);
  EXPECT_FALSE(bars.of(CpuClass::avx512_bf16).stretch.has_value());
  EXPECT_FALSE(bars.of(CpuClass::other).least.has_value());
}

std::vector<Figure> later(const Setup&) { return {{"z/one", ""}, {"z/two", ""}}; }
std::vector<Figure> sooner(const Setup&) { return {{"a/one", ""}}; }
const Subject z("z", later);
const Subject a("a", sooner);

TEST(Subjects, ComeByName) {
  std::vector<std::string> names;
  for (const Figure& figure : all_figures({})) {
    names.push_back(figure.name);
  }
  EXPECT_THAT(names, testing::ElementsAre("a/one", "z/one", "z/two"));
}

}  // namespace
}  // namespace mantissa::bench
