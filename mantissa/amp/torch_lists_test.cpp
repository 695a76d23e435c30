#include "mantissa/amp/torch_lists.h"

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
#include "mantissa/base/message_of.h"

namespace mantissa::amp {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

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
  for (const auto& [operation, resolved] : resolved_rules(find_policy(policy))) {
    if (operation.starts_with("aten::")) {  // torch has no others
      names.insert(operation);
    }
  }
  return names;
}

std::map<Rule, int> count_by_rule(TorchList list, int minor_version) {
  std::map<Rule, int> counts;
  for (const OpRule& row : torch_list(list, minor_version)) {
    ++counts[row.rule];
  }
  return counts;
}

// The live dispatcher of the LibTorch that this runs with, whichever of the supported ones it is.
TEST(TorchLists, CudaIsExactlyWhatTheDispatcherHas) {
  std::set<std::string> expected = registered_for(c10::DispatchKey::AutocastCUDA);
  expected.insert("aten::_cudnn_rnn");  // registered by libtorch_cuda, which may not be loaded
  EXPECT_EQ(listed_by("torch"), expected);
}

TEST(TorchLists, CpuIsExactlyWhatTheDispatcherHas) {
  EXPECT_EQ(listed_by("torch-cpu"), registered_for(c10::DispatchKey::AutocastCPU));
}

TEST(TorchLists, SharesOfEachRuleAreThoseOfTorch213) {
  EXPECT_THAT(count_by_rule(TorchList::cuda, 13),
              ElementsAre(Pair(Rule::lower, 36), Pair(Rule::fp32, 59), Pair(Rule::fp32_output, 13),
                          Pair(Rule::widest, 11), Pair(Rule::banned, 1)));
  EXPECT_THAT(count_by_rule(TorchList::cpu, 13),
              ElementsAre(Pair(Rule::lower, 24), Pair(Rule::fp32, 100), Pair(Rule::widest, 3)));
}

TEST(TorchLists, TheTwoOf213Share39Names) {
  std::set<std::string_view> cuda;
  for (const OpRule& row : torch_list(TorchList::cuda, 13)) {
    cuda.insert(row.operation);
  }
  const auto cpu = torch_list(TorchList::cpu, 13);
  EXPECT_EQ(std::count_if(cpu.begin(), cpu.end(),
                          [&](const OpRule& row) { return cuda.contains(row.operation); }),
            39);
}

TEST(TorchLists, NoOverloadIsListedTwice) {
  for (int minor = kFirstListedMinor; minor <= kLastListedMinor; ++minor) {
    for (const TorchList list : {TorchList::cuda, TorchList::cpu}) {
      std::set<std::string_view> seen;
      for (const OpRule& row : torch_list(list, minor)) {
        EXPECT_TRUE(seen.insert(row.operation).second) << minor << ": " << row.operation;
      }
    }
  }
}

// pytorch/pytorch#174824
TEST(TorchLists, RmsNormIsListedSince212) {
  const auto has_rms_norm = [](int minor) {
    const auto list = torch_list(TorchList::cuda, minor);
    return std::any_of(list.begin(), list.end(),
                       [](const OpRule& row) { return row.operation == "rms_norm"; });
  };
  EXPECT_FALSE(has_rms_norm(11));
  EXPECT_TRUE(has_rms_norm(12));
}

TEST(TorchLists, AnUnknownVersionSaysSo) {
  EXPECT_EQ(message_of<Unsupported>([] { (void)torch_list(TorchList::cpu, 16); }),
            "policy: the operation lists of LibTorch 2.16 are not known; they are for 2.11 to "
            "2.15, use one of these or a policy file with base = \"fp32\"");
}

}  // namespace
}  // namespace mantissa::amp
