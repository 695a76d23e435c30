#include "mantissa/report/device_time.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "mantissa/report/study_example.h"
#include "mantissa/report/study_json.h"

namespace mantissa::report {
namespace {

using testing::HasSubstr;

// A device that lacks bf16, and one that lacks memory.
std::vector<DeviceTime> example() {
  DeviceTime old_fp32{"Old", "fp32", 0.004, 0.001, "", 100, 1000};
  DeviceTime old_bf16{"Old", "bf16", 0, 0, "no rate of bf16 products", 80, 1000};
  DeviceTime small_fp32{"Small", "fp32", 0.001, 0.002, "", 100, 90};
  DeviceTime small_bf16{"Small", "bf16", 0.0005, 0.001, "", 80, 90};
  return {old_fp32, old_bf16, small_fp32, small_bf16};
}

TEST(DeviceTime, StandsBelowWhatWasMeasuredAndIsSaidToBeArithmetic) {
  const std::string text = device_times_text(two_arms(1).analysed(), example());
  EXPECT_THAT(text, testing::StartsWith(
                        "a step, at least                   fp32                      bf16\n"
                        "here, measured                  13.8 ms                   11.0 ms\n"
                        "Old                             4.00 ms  no rate of bf16 products\n"
                        "Small             2.00 ms, does not fit                   1.00 ms\n"));
  EXPECT_THAT(text, HasSubstr("arithmetic, not measured"));
}

TEST(DeviceTime, IsInTheObjectOfAStudy) {
  const auto json = nlohmann::json::parse(
      to_json(two_arms(1).analysed(), {}, "hardware", std::nullopt, example()));
  ASSERT_EQ(json["devices"].size(), 4U);
  EXPECT_EQ(json["devices"][0]["device"], "Old");
  EXPECT_EQ(json["devices"][0]["arm"], "fp32");
  EXPECT_EQ(json["devices"][0]["step_time_bound"]["s"], 0.004);
  EXPECT_EQ(json["devices"][0]["fits"], true);
  EXPECT_TRUE(json["devices"][1]["step_time_bound"].is_null());
  EXPECT_EQ(json["devices"][1]["why_no_time"], "no rate of bf16 products");
  EXPECT_EQ(json["devices"][2]["fits"], false);
  const auto none = nlohmann::json::parse(to_json(two_arms(1).analysed(), {}, "hardware"));
  EXPECT_TRUE(none["devices"].empty());
}

}  // namespace
}  // namespace mantissa::report
