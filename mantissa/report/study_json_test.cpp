#include "mantissa/report/study_json.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "mantissa/report/study_example.h"

namespace mantissa::report {
namespace {

using nlohmann::json;

json parsed(const Study& study, const std::vector<Gate>& gates = {}) {
  return json::parse(to_json(study, judge(gates, study), "a machine"));
}

TEST(StudyJson, HasAllOfTheComparison) {
  const json object = parsed(two_arms(3).analysed({.target = 2.1, .price_per_hour = 2.5}),
                             parse_gates("quality,speed=2"));
  EXPECT_EQ(object["schema"], kStudySchema);
  EXPECT_EQ(object["hardware"], "a machine");
  EXPECT_EQ(object["reference"], "fp32");
  EXPECT_EQ(object["target"], 2.1);
  EXPECT_EQ(object["arms"].size(), 2U);
  EXPECT_EQ(object["runs"].size(), 6U);
  EXPECT_EQ(object["arms"][1]["speed"]["value"], 1.25);
  EXPECT_EQ(object["arms"][1]["quality_verdict"], "equivalent");
  EXPECT_EQ(object["arms"][1]["quality"]["pairs"], 3);
  EXPECT_FALSE(object["arms"][0].contains("speed"));
  EXPECT_EQ(object["runs"][0]["precision"], "fp32");
  EXPECT_EQ(object["runs"][0]["target_step"], 30);
  EXPECT_EQ(object["runs"][0]["evaluations"].size(), 4U);
  EXPECT_EQ(object["runs"][0]["peak_bytes"]["activations"], 8500);
  EXPECT_EQ(object["gates"][0]["met"], true);
  EXPECT_EQ(object["gates"][1]["met"], false);
  EXPECT_THAT(object["verdict"][0].get<std::string>(), testing::StartsWith("bf16 beside fp32: "));
}

TEST(StudyJson, WhatIsNotKnownIsNull) {
  StudyExample example = two_arms(1);
  example.runs[1].failure = "train: it failed";
  const json object = parsed(example.analysed({.target = 1.5}));
  EXPECT_TRUE(object["price_per_hour"].is_null());
  EXPECT_TRUE(object["arms"][0]["target_s"].is_null());  // infinite: not reached
  EXPECT_TRUE(object["arms"][0]["step_time_s"]["low"].is_null());
  EXPECT_TRUE(object["arms"][1]["quality"].is_null());
  EXPECT_EQ(object["runs"][1]["failure"], "train: it failed");
  EXPECT_FALSE(object["runs"][1].contains("bits_per_base"));
}

TEST(StudyJson, AnAttributionIsThereWhenItWasAskedFor) {
  const Study study = two_arms(2).analysed();
  EXPECT_TRUE(parsed(study)["attribution"].is_null());
  const Attribution attribution = attribute(study, {{"fp32", "fp32", ""}, {"bf16", "bf16", ""}});
  const json object = json::parse(to_json(study, {}, "a machine", attribution));
  const json& effect = object["attribution"]["effects"][0];
  EXPECT_EQ(effect["factor"], "format");
  EXPECT_EQ(effect["speed"]["value"], 1.25);
  EXPECT_EQ(effect["rounds"], 8);
  EXPECT_TRUE(effect["target"]["value"].is_null());
  EXPECT_TRUE(object["attribution"]["stopping"].empty());
}

}  // namespace
}  // namespace mantissa::report
