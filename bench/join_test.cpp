#include "bench/join.h"

#include <gmock/gmock.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"

namespace mantissa::bench {
namespace {

using nlohmann::json;

json run_of(const std::string& commit, const json& figures, double others) {
  return {{"machine",
           {{"cpu", "c"},
            {"held_to_avx2", false},
            {"libtorch", "2"},
            {"commits", json::array({commit})},
            {"dirty", false}}},
          {"threads", 2},
          {"figures", figures},
          {"others_cpu_share", others}};
}

TEST(JoinRuns, TakesEachFigureFromTheLastThatHasIt) {
  const json first = run_of("1", {{{"name", "b"}, {"ratio", 1}}, {{"name", "c"}}}, 0.01);
  const json second = run_of("2", {{{"name", "b"}, {"ratio", 2}}, {{"name", "a"}}}, 0.03);
  const json joined = join_runs({first, second});
  EXPECT_EQ(joined["figures"],
            json({{{"name", "a"}}, {{"name", "b"}, {"ratio", 2}}, {{"name", "c"}}}));
  EXPECT_EQ(joined["machine"]["commits"], json({"1", "2"}));
  EXPECT_EQ(joined["others_cpu_share"], 0.03);
}

TEST(JoinRuns, OneIsItself) {
  const json run = run_of("1", {{{"name", "b"}}}, 0.01);
  EXPECT_EQ(join_runs({run}), run);
}

TEST(JoinRuns, RefusesOtherMachines) {
  json other = run_of("1", json::array(), 0);
  other["machine"]["cpu"] = "d";
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              join_runs({run_of("1", json::array(), 0), other});
            }),
            "bench: the files are of different runs, cpu is \"c\" and \"d\"; show them one by one");
  other = run_of("1", json::array(), 0);
  other["threads"] = 1;
  EXPECT_THROW(join_runs({run_of("1", json::array(), 0), other}), InvalidArgument);
}

}  // namespace
}  // namespace mantissa::bench
