#include "mantissa/report/speed_facts.h"

#include <cmath>

#include <gtest/gtest.h>

#include "mantissa/report/speed_json.h"
#include "mantissa/report/speed_testing.h"

namespace mantissa::report {
namespace {

// The products above take 0.1 s and 0.025 s in FP32 and BF16; their bytes 0.004 s.
constexpr Rates kRates = {1e10, 4e10, 1e9};

TEST(SpeedFacts, AreSharesOfTheStep) {
  const SpeedFacts facts = speed_facts({narrow_split()}, "bf16").value();
  EXPECT_EQ(facts.precision, "bf16");
  EXPECT_EQ(facts.step_s, 1);
  EXPECT_EQ(facts.data, 0);
  EXPECT_EQ(facts.casts, 0.0625);
  EXPECT_EQ(facts.optimizer, 0.1875);
  EXPECT_EQ(facts.products, 0.5);
  EXPECT_EQ(facts.in_16_bits, 0.5);
  EXPECT_EQ(facts.widened, 0);
  EXPECT_EQ(facts.unsupported, 0);
  EXPECT_EQ(facts.overhead, 0) << "the rows of the passes are all of them";
  EXPECT_TRUE(std::isnan(facts.memory_bound)) << "without rates it is not known";
  ASSERT_EQ(facts.reasons.size(), 1U);
  EXPECT_EQ(facts.reasons[0].reason, "kind");
  EXPECT_EQ(facts.reasons[0].share, 0.25);
}

TEST(SpeedFacts, OfSeveralStepsAreThoseOfTheMean) {
  record::TimeSplit waiting = narrow_split();
  waiting.phases["data"] = 3;
  waiting.step_time_s += 3;
  const SpeedFacts facts = speed_facts({narrow_split(), waiting}, "bf16").value();
  EXPECT_EQ(facts.step_s, 2.5);
  EXPECT_EQ(facts.data, 3 / 5.0);
  EXPECT_EQ(facts.products, 1 / 5.0);
}

TEST(SpeedFacts, AReplayIsNoPartOfAStep) {
  record::TimeSplit skipped = narrow_split();
  skipped.phases["replay"] = 7;
  skipped.step_time_s += 7;
  EXPECT_EQ(speed_facts({skipped}, "bf16")->step_s, 1);
  EXPECT_EQ(speed_facts({skipped}, "bf16")->products, 0.5);
}

TEST(SpeedFacts, WithoutAStepThereAreNone) { EXPECT_FALSE(speed_facts({}, "bf16").has_value()); }

TEST(SpeedFacts, ReasonsNameTheOperationThatTakesMost) {
  record::TimeSplit split = narrow_split();
  for (record::OperationRow& row : split.operations) {
    if (row.kind == "product") {
      row.in_16_bits = false;
      row.reason = "policy";
      row.detail = row.phase == "backward" ? "mm=fp32" : "another";
    }
  }
  split.operations[2].reason = "kernel";
  const SpeedFacts facts = speed_facts({split}, "bf16").value();
  EXPECT_EQ(facts.in_16_bits, 0);
  EXPECT_EQ(facts.unsupported, 0.5 + 0.125);
  EXPECT_EQ(facts.reasons[0].reason, "policy");
  EXPECT_EQ(facts.reasons[0].share, 0.5);
  EXPECT_EQ(facts.reasons[0].detail, "mm=fp32");
  EXPECT_EQ(facts.reasons[0].operation, "aten::mm in blocks.*.mlp");
}

TEST(SpeedFacts, WidenedProductsAreToldFromThoseOnUnits) {
  record::TimeSplit split = narrow_split();
  split.operations[0].reason = "hardware";
  EXPECT_EQ(speed_facts({split}, "bf16")->widened, 0.375);
  EXPECT_EQ(speed_facts({split}, "bf16")->in_16_bits, 0.5);
}

TEST(SpeedFacts, SmallCallsAndWhatIsBetweenCallsAreOverhead) {
  record::TimeSplit split = narrow_split();
  split.operations[3].calls = 100000;  // 1.25 us each
  split.phases["backward"] += 1;
  split.step_time_s += 1;
  EXPECT_EQ(speed_facts({split}, "bf16")->overhead, (1 + 0.125) / 2);
}

TEST(SpeedFacts, AProductWhoseBytesTakeLongerIsMemoryBound) {
  record::TimeSplit split = narrow_split();
  // In 0.375 s; its arithmetic takes 0.025 s.
  const auto bound = [&](double bytes_s) {
    split.operations[0].bytes = bytes_s * kRates.copy_bytes;
    return speed_facts({split}, "bf16", kRates)->memory_bound;
  };
  EXPECT_EQ(bound(0.2), 0.375);
  EXPECT_EQ(bound(0.7), 0.375);
  EXPECT_EQ(bound(0.18), 0) << "something else takes most of its time";
  EXPECT_EQ(bound(0.8), 0) << "caches spared most of the bytes";
  split.operations[0].flops = 3e10;  // 0.75 s
  EXPECT_EQ(bound(0.7), 0) << "arithmetic takes longer";
  EXPECT_EQ(speed_facts({narrow_split()}, "bf16", kRates)->memory_bound, 0);
}

const OperationGain& gain_of(const std::vector<OperationGain>& gains, const std::string& phase,
                             const std::string& operation) {
  for (const OperationGain& gain : gains) {
    if (gain.fp32.phase == phase && gain.fp32.operation == operation) {
      return gain;
    }
  }
  throw std::runtime_error("no " + operation);
}

TEST(OperationGains, ProductsFollowTheRatesOthersTheBytes) {
  record::TimeSplit narrow = narrow_split();
  narrow.operations[2].bytes = 3e6;
  const auto gains = operation_gains(fp32_split(), narrow, kRates);
  ASSERT_EQ(gains.size(), 4U) << "casts are left out";
  EXPECT_EQ(gains[0].fp32.time_s, 0.75) << "the longest first";
  const OperationGain& product = gain_of(gains, "backward", "aten::mm");
  EXPECT_DOUBLE_EQ(product.predicted, 4);
  EXPECT_EQ(product.measured, 2);
  const OperationGain& gelu = gain_of(gains, "backward", "GeluBackward");
  EXPECT_DOUBLE_EQ(gelu.predicted, 4.0 / 3);
  EXPECT_EQ(gelu.measured, 1);
}

TEST(OperationGains, AProductThatWaitsForMemoryGainsTwoAtMost) {
  record::TimeSplit fp32 = fp32_split();
  fp32.operations[0].bytes = 1e9;  // 1 s beside 0.1 s, then 0.5 s beside 0.025 s
  EXPECT_DOUBLE_EQ(
      gain_of(operation_gains(fp32, narrow_split(), kRates), "backward", "aten::mm").predicted, 2);
}

TEST(OperationGains, WithoutRatesNothingIsPredictedOfProducts) {
  EXPECT_EQ(
      gain_of(operation_gains(fp32_split(), narrow_split(), {}), "backward", "aten::mm").predicted,
      1);
}

TEST(OperationGains, AnOperationOfTheFp32RunAloneHasNoMeasuredGain) {
  record::TimeSplit narrow = narrow_split();
  narrow.operations.erase(narrow.operations.begin());
  const auto gains = operation_gains(fp32_split(), narrow, kRates);
  EXPECT_TRUE(std::isnan(gain_of(gains, "backward", "aten::mm").measured));
  EXPECT_EQ(gain_of(gains, "backward", "aten::mm").narrow.calls, 0);
}

TEST(OperationGains, ThatOfTheProductsIsOfTheirTimesTogether) {
  record::TimeSplit narrow = narrow_split();
  narrow.operations[0].time_s = 1.875;  // and 0.125 s, where FP32 takes 0.75 s and 0.25 s
  EXPECT_EQ(product_gain(operation_gains(fp32_split(), narrow, {})), 0.5);
  narrow.operations.erase(narrow.operations.begin());
  EXPECT_EQ(product_gain(operation_gains(fp32_split(), narrow, {})), 2) << "both runs have";
  EXPECT_TRUE(std::isnan(product_gain({})));
}

// Products take 1 s of 1.4375 s and are to be four times as fast; the bytes of the rest, which is
// in FP32 in both, are the same.
TEST(OperationGains, ThatOfTheStepKeepsWhatIsNoOperation) {
  record::TimeSplit narrow = narrow_split();
  for (record::OperationRow& row : narrow.operations) {
    row.bytes = 4e6;
  }
  const auto gains = operation_gains(fp32_split(), narrow, kRates);
  EXPECT_DOUBLE_EQ(predicted_gain(fp32_split(), gains), 1.4375 / (1.4375 - 0.75));
}

TEST(SpeedJson, SaysWhatIsNotKnownByNull) {
  const std::string json = to_json(speed_facts({narrow_split()}, "bf16").value());
  EXPECT_NE(json.find(R"("products":0.5,"in_16_bits":0.5)"), std::string::npos) << json;
  EXPECT_NE(
      json.find(
          R"("memory_bound":null,"product_gain":null,"predicted_gain":null,"measured_gain":null)"),
      std::string::npos)
      << json;
  EXPECT_NE(json.find(R"({"verdict":"unclear")"), std::string::npos) << json;
}

}  // namespace
}  // namespace mantissa::report
