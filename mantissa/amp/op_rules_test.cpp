#include "mantissa/amp/op_rules.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include <ATen/core/dispatch/Dispatcher.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/version.h>

#include "mantissa/amp/policy.h"
#include "mantissa/base/error.h"

namespace mantissa::amp {
namespace {

std::set<std::string> registered_for(c10::DispatchKey key) {
  std::set<std::string> names;
  for (const auto& name : c10::Dispatcher::singleton().getRegistrationsForDispatchKey(key)) {
    if (name.name.starts_with("aten::")) {
      names.insert(c10::toString(name));
    }
  }
  return names;
}

std::set<std::string> listed_by(const std::string& policy) {
  std::set<std::string> names;
  for (const auto& [operation, rule] : resolved_rules(find_policy(policy))) {
    names.insert(operation);
  }
  return names;
}

std::map<Rule, int> count_by_rule(std::string_view table) {
  std::map<Rule, int> counts;
  for (const OpRule& row : op_table(table)) {
    ++counts[row.rule];
  }
  return counts;
}

#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR == 13
constexpr bool kIs213 = true;
#else
constexpr bool kIs213 = false;
#endif

TEST(OpRules, TorchListsExactlyWhatTheDispatcherHasForCuda) {
  if (!kIs213) {
    GTEST_SKIP() << "the table is that of LibTorch 2.13, this is " << TORCH_VERSION;
  }
  std::set<std::string> expected = registered_for(c10::DispatchKey::AutocastCUDA);
  expected.insert("aten::_cudnn_rnn");  // registered by libtorch_cuda, which may not be loaded
  EXPECT_EQ(listed_by("torch"), expected);
}

TEST(OpRules, TorchCpuListsExactlyWhatTheDispatcherHasForCpu) {
  if (!kIs213) {
    GTEST_SKIP() << "the table is that of LibTorch 2.13, this is " << TORCH_VERSION;
  }
  EXPECT_EQ(listed_by("torch-cpu"), registered_for(c10::DispatchKey::AutocastCPU));
}

TEST(OpRules, SharesOfEachRuleAreThoseOfTorch213) {
  EXPECT_THAT(
      count_by_rule("torch"),
      testing::ElementsAre(testing::Pair(Rule::lower, 36), testing::Pair(Rule::fp32, 59),
                           testing::Pair(Rule::fp32_output, 13), testing::Pair(Rule::widest, 11),
                           testing::Pair(Rule::banned, 1)));
  EXPECT_THAT(count_by_rule("torch-cpu"),
              testing::ElementsAre(testing::Pair(Rule::lower, 24), testing::Pair(Rule::fp32, 100),
                                   testing::Pair(Rule::widest, 3)));
  EXPECT_THAT(op_table("fp32"), testing::IsEmpty());
}

TEST(OpRules, TheTwoTorchTablesShare39Names) {
  const std::set<std::string> cpu = listed_by("torch-cpu");
  const std::set<std::string> cuda = listed_by("torch");
  EXPECT_EQ(std::count_if(cpu.begin(), cpu.end(), [&](auto& name) { return cuda.contains(name); }),
            39);
}

TEST(OpRules, NoOverloadIsListedTwice) {
  for (const std::string& table : op_table_names()) {
    std::set<std::string_view> seen;
    for (const OpRule& row : op_table(table)) {
      EXPECT_TRUE(seen.insert(row.operation).second) << table << ": " << row.operation;
    }
  }
}

TEST(OpRules, RulesRoundTripAsText) {
  for (const Rule rule :
       {Rule::lower, Rule::fp32, Rule::fp32_output, Rule::widest, Rule::keep, Rule::banned}) {
    EXPECT_EQ(parse_rule(to_string(rule)), rule);
  }
}

TEST(OpRules, UnknownRuleAndTableNameTheNearest) {
  try {
    (void)parse_rule("widst");
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "rule: unknown \"widst\"; did you mean \"widest\"?");
  }
  try {
    (void)op_table("torhc");
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "policy: unknown base \"torhc\"; did you mean \"torch\"?");
  }
}

}  // namespace
}  // namespace mantissa::amp
