#include "bench/figure_run.h"

#include <cmath>

#include <gmock/gmock.h>

#include "mantissa/base/error.h"

namespace mantissa::bench {
namespace {

using nlohmann::json;

// Times without a clock: what is tested is what becomes of them.
Case case_of(const std::string& name, const Samples& samples) {
  return {name, [samples](const Sampling&) { return samples; }, 3e9, "FLOP"};
}

TEST(RunFigure, KeepsCasesAndJudgesRows) {
  const Figure figure{.name = "subject/figure",
                      .meaning = "a against b",
                      .cases = {case_of("one", {{1, 2, 2, 2, 4}, {3, 6, 6, 6, 12}}),
                                case_of("two", {{2, 2, 2, 2, 2}, {1, 1, 1, 1, 1}, 2})},
                      .rows = {{"worst", Summary::worst, {.avx2 = {1.0, 1.1}}},
                               {"mean", Summary::geometric_mean, {.avx512_bf16 = {9, {}}}}}};
  const json result = run_figure(figure, {.cpu = CpuClass::avx2});

  const json& one = result["cases"][0];
  EXPECT_EQ(one["name"], "one");
  EXPECT_EQ(one["ours"]["median"], 2);
  EXPECT_EQ(one["ours"]["least"], 1);
  EXPECT_EQ(one["ours"]["GFLOP/s"], 1.5);
  EXPECT_EQ(one["ratios"], json::array({3, 3, 3, 3, 3}));
  EXPECT_EQ(result["cases"][1]["peer_factor"], 2);

  const json& worst = result["rows"][0];
  EXPECT_EQ(worst["ratio"], 1);
  EXPECT_EQ(worst["worst_case"], "two");
  EXPECT_EQ(worst["pairs"], 5);
  EXPECT_EQ(worst["bar"], json({{"ratio", 1.0}, {"verdict", "pass"}}));
  EXPECT_EQ(worst["stretch"], json({{"ratio", 1.1}, {"verdict", "falls short"}}));
  const json& mean = result["rows"][1];
  EXPECT_NEAR(mean["ratio"].get<double>(), std::sqrt(3.0), 1e-12);
  EXPECT_FALSE(mean.contains("bar"));
  EXPECT_FALSE(mean.contains("worst_case"));
}

TEST(RunFigure, SharesItsTimeAmongCasesAndPassesOnWhatIsLeft) {
  std::vector<double> budgets;
  const auto taking = [&](double spent_s) {
    return Case{"c", [&budgets, spent_s](const Sampling& sampling) {
                  budgets.push_back(sampling.budget_s);
                  return Samples{.ours = {1}, .peer = {1}, .spent_s = spent_s};
                }};
  };
  run_figure({.name = "f", .meaning = "", .cases = {taking(2), taking(14), taking(9)}, .share = 3},
             {.seconds = 10});
  EXPECT_THAT(budgets, testing::ElementsAre(10, 14, 14));
}

TEST(RunFigure, BytesAreCountedOnce) {
  const Figure figure{.name = "f",
                      .meaning = "",
                      .cases = {counted("b", [] { return Bytes{.ours = 2, .peer = 8}; })},
                      .rows = {{"", Summary::worst, {{3.9, 4.1}, {}}}}};
  const json result = run_figure(figure, {.cpu = CpuClass::avx2});
  EXPECT_EQ(result["cases"][0]["unit"], "bytes");
  EXPECT_EQ(result["rows"][0]["low"], 4);
  EXPECT_EQ(result["rows"][0]["high"], 4);
  EXPECT_EQ(result["rows"][0]["pairs"], 1);
  // Another count would give the same, so that one tells.
  EXPECT_EQ(result["rows"][0]["bar"]["verdict"], "pass");
  EXPECT_EQ(result["rows"][0]["stretch"]["verdict"], "falls short");
}

TEST(RunFigure, BytesThatScatterAreCountedSeveralTimes) {
  double bytes = 8;
  const Figure figure{.name = "f",
                      .meaning = "",
                      .cases = {counted(
                          "b", [&] { return Bytes{.ours = 2, .peer = bytes++}; }, 5)}};
  EXPECT_EQ(run_figure(figure, {})["rows"][0]["pairs"], 5);
}

TEST(RunFigure, AnUnavailableOneHasItsReason) {
  const json result = run_figure({.name = "f", .meaning = "m", .unavailable = "no such units"}, {});
  EXPECT_EQ(result, json({{"name", "f"}, {"meaning", "m"}, {"unavailable", "no such units"}}));
}

TEST(RunFigure, OneThatThrowsIsUnavailableAndFailed) {
  const auto refuse = []() -> Contest { throw Error("the losses differ\nat some place"); };
  const json result = run_figure({.name = "f", .meaning = "m", .cases = {timed("c", refuse)}}, {});
  EXPECT_EQ(result, json({{"name", "f"},
                          {"meaning", "m"},
                          {"unavailable", "the losses differ"},
                          {"failed", true}}));
}

}  // namespace
}  // namespace mantissa::bench
