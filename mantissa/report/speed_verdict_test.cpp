#include "mantissa/report/speed_verdict.h"

#include <gmock/gmock.h>

namespace mantissa::report {
namespace {

using ::testing::HasSubstr;

// Faster by nothing, for no reason that stands out.
SpeedFacts plain() {
  SpeedFacts facts;
  facts.precision = "bf16";
  facts.step_s = 1;
  facts.casts = 0.1;
  facts.optimizer = 0.1;
  facts.products = 0.6;
  facts.in_16_bits = 0.6;
  facts.measured = Estimate{1, 0.9, 1.1};
  facts.predicted = 2;
  return facts;
}

SpeedVerdict verdict_of(const SpeedFacts& facts) { return judge_speed(facts).verdict; }

TEST(SpeedVerdict, WithoutACauseThatStandsOutItIsUnclear) {
  EXPECT_EQ(verdict_of(plain()), SpeedVerdict::unclear);
  EXPECT_THAT(judge_speed(plain()).why, HasSubstr("60 % is products, 10 % casts"));
}

TEST(SpeedVerdict, FasterAsPredictedIsAsExpected) {
  SpeedFacts facts = plain();
  facts.measured = Estimate{1.7, 1.6, 1.8};
  EXPECT_EQ(verdict_of(facts), SpeedVerdict::as_expected);
  EXPECT_EQ(judge_speed(facts).why,
            "bf16 is 1.70 times as fast as fp32, where 2.00 was predicted without casts");
  facts.measured->value = 1.59;
  EXPECT_EQ(verdict_of(facts), SpeedVerdict::unclear) << "less than 0.8 of 2";
  facts.predicted = kNotKnown;
  EXPECT_EQ(verdict_of(facts), SpeedVerdict::as_expected);
  facts.predicted = 1.1;
  facts.measured->value = 1.05;
  EXPECT_EQ(verdict_of(facts), SpeedVerdict::unclear) << "as predicted, and hardly faster";
}

TEST(SpeedVerdict, AQuarterOfWaitingIsInputBound) {
  SpeedFacts facts = plain();
  facts.data = 0.26;
  EXPECT_EQ(verdict_of(facts), SpeedVerdict::input_bound);
  EXPECT_EQ(judge_speed(facts).why, "26 % of a step waits for data");
  EXPECT_THAT(judge_speed(facts).advice, HasSubstr("data.threads"));
  facts.data = 0.24;
  EXPECT_EQ(verdict_of(facts), SpeedVerdict::unclear);
}

TEST(SpeedVerdict, ASixthOfCastsIsCastBound) {
  SpeedFacts facts = plain();
  facts.casts = 0.17;
  EXPECT_EQ(verdict_of(facts), SpeedVerdict::cast_bound);
  EXPECT_EQ(judge_speed(facts).why, "17 % of a step is casts between fp32 and bf16, 60 % products");
  facts.casts = 0.16;
  EXPECT_EQ(verdict_of(facts), SpeedVerdict::unclear);
}

TEST(SpeedVerdict, AThirdOfSmallCallsIsTooSmall) {
  SpeedFacts facts = plain();
  facts.overhead = 0.34;
  EXPECT_EQ(verdict_of(facts), SpeedVerdict::too_small);
  EXPECT_THAT(judge_speed(facts).why, HasSubstr("34 % of a step is calls of less than 10.0 us"));
  facts.overhead = 0.33;
  EXPECT_EQ(verdict_of(facts), SpeedVerdict::unclear);
}

TEST(SpeedVerdict, ProductsThatAreWidenedMeanNoUnits) {
  SpeedFacts facts = plain();
  facts.widened = 0.31;
  facts.reasons = {{"kind", "", "", 0.3},
                   {"hardware", "this CPU has no BF16 units", "aten::mm", 0.31}};
  EXPECT_EQ(verdict_of(facts), SpeedVerdict::no_units);
  EXPECT_EQ(judge_speed(facts).why,
            "31 % of a step is products in bf16 that are computed by FP32 units: this CPU has no "
            "BF16 units");
  facts.widened = 0.29;
  EXPECT_EQ(verdict_of(facts), SpeedVerdict::unclear);
  facts.in_16_bits = facts.widened = 0;
  EXPECT_EQ(verdict_of(facts), SpeedVerdict::unclear) << "half of nothing";
}

TEST(SpeedVerdict, ProductsThatTakeLongerIn16BitsHaveSlowKernels) {
  SpeedFacts facts = plain();
  facts.product_gain = 0.35;
  EXPECT_EQ(verdict_of(facts), SpeedVerdict::slow_kernels);
  EXPECT_EQ(judge_speed(facts).why,
            "60 % of a step is products, and in bf16 they are 0.35 times as fast as fp32: the "
            "kernels are slow for these shapes");
  facts.product_gain = 0.95;
  EXPECT_EQ(verdict_of(facts), SpeedVerdict::unclear) << "measurements differ by as much";
  facts.product_gain = 0.35;
  facts.products = facts.in_16_bits = 0.2;
  EXPECT_EQ(verdict_of(facts), SpeedVerdict::few_products) << "that is not what takes the time";
}

TEST(SpeedVerdict, WorkThatIsKeptFromUnitsIsUnsupported) {
  SpeedFacts facts = plain();
  facts.unsupported = 0.26;
  facts.reasons = {{"kind", "", "aten::add", 0.3},
                   {"policy", "mm=fp32", "aten::mm in head", 0.2},
                   {"kernel", "none", "aten::_fft_r2c", 0.06}};
  EXPECT_EQ(verdict_of(facts), SpeedVerdict::unsupported);
  EXPECT_EQ(judge_speed(facts).why,
            "26 % of a step is work that did not get the units of bf16, most by aten::mm in head "
            "(policy: mm=fp32)");
  EXPECT_THAT(judge_speed(facts).advice, HasSubstr("mantissa policy explain"));
  facts.reasons[1].reason = "shape";
  EXPECT_THAT(judge_speed(facts).advice, HasSubstr("multiples of 8"));
  facts.reasons.erase(facts.reasons.begin() + 1);
  EXPECT_THAT(judge_speed(facts).advice, HasSubstr("a kernel for these units"));
  facts.unsupported = 0.24;
  EXPECT_EQ(verdict_of(facts), SpeedVerdict::unclear);
}

TEST(SpeedVerdict, ProductsThatWaitForMemoryAreMemoryBound) {
  SpeedFacts facts = plain();
  facts.memory_bound = 0.31;
  EXPECT_EQ(verdict_of(facts), SpeedVerdict::memory_bound);
  EXPECT_THAT(judge_speed(facts).why, HasSubstr("31 % of a step is products whose bytes"));
  facts.memory_bound = 0.29;
  EXPECT_EQ(verdict_of(facts), SpeedVerdict::unclear);
}

TEST(SpeedVerdict, LittleToGainIsFewProducts) {
  SpeedFacts facts = plain();
  facts.products = facts.in_16_bits = 0.4;
  facts.reasons = {{"kind", "", "aten::add", 0.35}, {"kernel", "", "", 0.05}};
  EXPECT_EQ(verdict_of(facts), SpeedVerdict::few_products);
  EXPECT_EQ(judge_speed(facts).why,
            "products are 40 % of a step; 40 % are operations that 16-bit units do not compute, "
            "10 % the optimizer");
}

TEST(SpeedVerdict, TheFirstThatHoldsDecides) {
  SpeedFacts facts = plain();
  facts.data = facts.casts = facts.overhead = facts.unsupported = 0.9;
  facts.widened = facts.memory_bound = 0.9;
  facts.products = 0.1;
  EXPECT_EQ(verdict_of(facts), SpeedVerdict::input_bound);
  facts.data = 0;
  EXPECT_EQ(verdict_of(facts), SpeedVerdict::cast_bound);
  facts.casts = 0;
  EXPECT_EQ(verdict_of(facts), SpeedVerdict::too_small);
  facts.overhead = 0;
  EXPECT_EQ(verdict_of(facts), SpeedVerdict::no_units);
  facts.widened = 0;
  facts.products = 0.5;
  facts.product_gain = 0.5;
  EXPECT_EQ(verdict_of(facts), SpeedVerdict::slow_kernels);
  facts.products = 0.1;
  EXPECT_EQ(verdict_of(facts), SpeedVerdict::unsupported);
  facts.unsupported = 0;
  EXPECT_EQ(verdict_of(facts), SpeedVerdict::memory_bound);
  facts.memory_bound = kNotKnown;
  EXPECT_EQ(verdict_of(facts), SpeedVerdict::few_products);
  facts.measured = Estimate{3, 3, 3};
  EXPECT_EQ(verdict_of(facts), SpeedVerdict::as_expected);
}

TEST(SpeedVerdict, IsASentenceWithWhatToDo) {
  SpeedFacts facts = plain();
  facts.data = 0.5;
  EXPECT_EQ(to_string(judge_speed(facts)),
            "input-bound: 50 % of a step waits for data; load faster first, with more data.threads "
            "and data.prefetch; no format makes a wait shorter");
}

}  // namespace
}  // namespace mantissa::report
