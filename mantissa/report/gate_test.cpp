#include "mantissa/report/gate.h"

#include <gmock/gmock.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/report/study_example.h"

namespace mantissa::report {
namespace {

using testing::HasSubstr;

bool is_met(const std::string& gate, const Study& study) {
  const std::vector<GateResult> results = judge(parse_gates(gate), study);
  EXPECT_EQ(results.size(), study.arms.size() - 1);
  EXPECT_EQ(results.front().gate, gate);
  return results.front().is_met;
}

TEST(Gate, HoldsEachArmButTheReferenceToEachGate) {
  StudyExample example = two_arms(3);
  for (int64_t seed = 1; seed <= 3; ++seed) {
    example.add("fp16", seed, 0.02, 1.95 + 0.01 * static_cast<double>(seed));
  }
  const std::vector<GateResult> results =
      judge(parse_gates("quality,speed=1.2"), example.analysed());
  ASSERT_EQ(results.size(), 4U);
  EXPECT_TRUE(results[0].is_met);
  EXPECT_TRUE(results[1].is_met);
  EXPECT_EQ(results[3].arm, "fp16");
  EXPECT_FALSE(results[3].is_met);
  EXPECT_THAT(gates_text(results), HasSubstr("gate speed=1.2: fp16: not met: slower: 0.50 times"));
  EXPECT_THAT(gates_text(results), HasSubstr("gate quality: bf16: met: equivalent: "));
}

TEST(Gate, SpeedIsHeldToTheLowerEndOfItsInterval) {
  const StudyExample example = two_arms(2);
  EXPECT_TRUE(is_met("speed=1.2", example.analysed()));
  EXPECT_FALSE(is_met("speed=1.3", example.analysed()));
  Study study = example.analysed();
  study.arms[1].speed->low = 1.19;
  EXPECT_FALSE(is_met("speed=1.2", study));
  EXPECT_FALSE(is_met("speed=0.1", two_arms(1).analysed()));  // no interval
}

TEST(Gate, QualityPassesWhenEquivalentAlone) {
  EXPECT_TRUE(is_met("quality", two_arms(3).analysed()));
  EXPECT_FALSE(is_met("quality", two_arms(2).analysed({.margin = 1e-4})));  // inconclusive
  EXPECT_FALSE(is_met("quality", two_arms(3, 0.05).analysed()));
  EXPECT_FALSE(is_met("quality", two_arms(3, -0.05).analysed()));
  EXPECT_FALSE(is_met("quality", two_arms(1).analysed()));  // not tested
}

TEST(Gate, MemoryTargetAndCostHaveUpperBounds) {
  const StudyExample example = two_arms(2);
  EXPECT_TRUE(is_met("memory=0.62", example.analysed()));
  EXPECT_FALSE(is_met("memory=0.61", example.analysed()));
  EXPECT_TRUE(is_met("target", example.analysed({.target = 2.0})));
  EXPECT_FALSE(is_met("target", example.analysed({.target = 1.965})));  // by one of two seeds
  EXPECT_TRUE(is_met("cost=0.01", example.analysed({.target = 2.0, .price_per_hour = 36})));
  EXPECT_FALSE(is_met("cost=0.001", example.analysed({.target = 2.0, .price_per_hour = 36})));
  EXPECT_FALSE(is_met("cost=100", example.analysed({.target = 1.5, .price_per_hour = 36})));
}

TEST(Gate, AFailedRunPassesNone) {
  StudyExample example = two_arms(2);
  example.runs[3].failure = "train: it failed";
  for (const char* gate : {"quality", "speed=0.1", "memory=9", "target", "cost=9"}) {
    EXPECT_FALSE(is_met(gate, example.analysed({.target = 2.0, .price_per_hour = 1}))) << gate;
  }
}

TEST(Gate, RefusesWhatIsNoGate) {
  const auto refusal = [](const char* text) {
    return message_of<InvalidArgument>([&] { (void)parse_gates(text); });
  };
  EXPECT_EQ(refusal("sped=1"), "--require: unknown gate \"sped\"; did you mean \"speed\"?");
  EXPECT_THAT(refusal(""), HasSubstr("has an empty name"));
  EXPECT_THAT(refusal("quality,"), HasSubstr("\"quality,\" has an empty name"));
  EXPECT_THAT(refusal("speed"), HasSubstr("\"speed\": speed needs a bound, for example speed=1.5"));
  EXPECT_THAT(refusal("quality=1"), HasSubstr("quality takes no bound"));
  EXPECT_THAT(refusal("speed=fast"), HasSubstr("the bound is not a number above 0"));
  EXPECT_THAT(refusal("speed=-1"), HasSubstr("the bound is not a number above 0"));
  EXPECT_THAT(refusal("speed=nan"), HasSubstr("the bound is not a number above 0"));
  EXPECT_THAT(refusal("speed=1,quality,speed=2"), HasSubstr("\"speed\" is named twice"));
  EXPECT_THAT(refusal("quality,quality"), HasSubstr("\"quality\" is named twice"));
}

}  // namespace
}  // namespace mantissa::report
