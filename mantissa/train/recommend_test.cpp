#include "mantissa/train/recommend.h"

#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mantissa/amp/autocast.h"
#include "mantissa/base/error.h"
#include "mantissa/tensor/scope.h"

namespace mantissa::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const char* const kFp16 = "torch compute=fp16";

// Layers with an attention whose logits are query^2 * 64, and an mlp that is tame.
struct Layers {
  std::vector<float> queries;

  at::Tensor forward() const {
    at::Tensor x = at::ones({2, 64});
    for (size_t i = 0; i < queries.size(); ++i) {
      const tensor::Scope layer("blocks." + std::to_string(i));
      {
        const tensor::Scope attention("attention");
        const at::Tensor q = at::matmul(x, at::full({64, 64}, queries[i] / 64));
        x = at::matmul(at::softmax(at::mm(q, q.t()), -1), x);
      }
      const tensor::Scope mlp("mlp");
      x = at::matmul(x, at::full({64, 64}, 1.0F / 64)).relu();
    }
    return x.sum();
  }

  bool is_finite(const amp::Policy& policy) const {
    const amp::Autocast region(policy);
    return std::isfinite(forward().item<double>());
  }

  std::vector<Keep> candidates_under(const amp::Policy& policy) const {
    return candidates([&] { (void)is_finite(policy); });
  }

  Recommendation recommendation(const RecommendOptions& options = {.only_policy = true}) const {
    const amp::Policy policy = amp::find_policy(kFp16);
    return recommend(
        policy, candidates_under(policy), [this](const amp::Policy& p) { return is_finite(p); },
        options);
  }
};

// 40 * 40 * 64 is beyond 65504.
TEST(Recommend, NamesTheOneOperationInTheOneScope) {
  const Layers layers{{1, 1, 40, 1}};
  const Recommendation cure = layers.recommendation();
  EXPECT_EQ(cure.curable, Curable::by_policy);
  EXPECT_THAT(cure.keep, ElementsAre(Keep{"blocks.2.attention", "aten::mm"}));
  EXPECT_EQ(to_string(cure.policy), "torch compute=fp16 mm@blocks.2.attention=fp32");
  EXPECT_TRUE(layers.is_finite(cure.policy));
  EXPECT_EQ(cure.why, "well with FP32 for aten::mm in blocks.2.attention; fails without it");
}

TEST(Recommend, ThePolicyFileCuresAsThePolicyDoes) {
  const Layers layers{{1, 40}};
  const Recommendation cure = layers.recommendation();
  const std::string file = amp::to_toml(cure.policy);
  EXPECT_THAT(file, HasSubstr("\"aten::mm@blocks.1.attention\" = \"fp32\""));
  EXPECT_TRUE(layers.is_finite(amp::parse_policy_toml(file, "cure.toml")));
}

TEST(Recommend, WhatEveryLayerNeedsIsOneGlob) {
  const Layers layers{{40, 50, 60, 40, 50, 60, 40, 50}};
  const Recommendation cure = layers.recommendation();
  EXPECT_THAT(cure.keep, ElementsAre(Keep{"blocks.*.attention", "aten::mm"}));
  EXPECT_TRUE(layers.is_finite(cure.policy));
  EXPECT_LE(cure.trials, 64);
}

TEST(Recommend, ALargerRangeIsTheCheaperCure) {
  const Recommendation cure = Layers{{40}}.recommendation({});
  EXPECT_EQ(cure.curable, Curable::by_range);
  EXPECT_TRUE(cure.keep.empty());
  EXPECT_EQ(to_string(cure.policy), "torch compute=bf16");
  EXPECT_EQ(cure.trials, 2);
}

TEST(Recommend, WhatIsWellNeedsNoCure) {
  const Recommendation cure = Layers{{1}}.recommendation({});
  EXPECT_EQ(cure.curable, Curable::healthy);
  EXPECT_EQ(cure.trials, 1);
  EXPECT_EQ(to_string(cure.policy), kFp16);
}

// 1e20 squared is beyond FP32.
TEST(Recommend, SaysWhatPrecisionCannotCure) {
  const Recommendation cure = Layers{{1e20F}}.recommendation({});
  EXPECT_EQ(cure.curable, Curable::not_by_precision);
  EXPECT_TRUE(cure.keep.empty());
  EXPECT_EQ(to_string(cure.policy), kFp16);
  EXPECT_EQ(cure.why,
            "fails with all in FP32 too: the cause is not the policy's precision, but the model, "
            "its data, the rate, or a cast in its code");
}

TEST(Recommend, AsksForALossScaleFirst) {
  RecommendOptions options;
  options.healthy_scaled = [](const amp::Policy&) { return true; };
  const Layers layers{{40}};
  EXPECT_EQ(layers.recommendation(options).curable, Curable::by_scale);
  EXPECT_EQ(to_string(layers.recommendation(options).policy), kFp16);
  options.only_policy = true;
  EXPECT_EQ(layers.recommendation(options).curable, Curable::by_policy);
}

// A fault that a user's own cast makes has no rule in the base, but can be given one.
TEST(Recommend, KeepsAnOperationThatThePolicyDoesNotList) {
  const auto is_finite = [](const amp::Policy& policy) {
    const amp::Autocast region(policy);
    return at::full({2}, 300, at::kHalf).mul(300).to(at::kFloat).isfinite().all().item<bool>();
  };
  const amp::Policy policy = amp::find_policy(kFp16);
  const Recommendation cure =
      recommend(policy, candidates([&] { (void)is_finite(policy); }), is_finite);
  EXPECT_EQ(cure.curable, Curable::by_policy);
  EXPECT_THAT(cure.keep, ElementsAre(Keep{"", "aten::mul"}));
}

// Answers by policy alone: which keeps are in it.
struct Fake {
  std::vector<Keep> all;
  std::vector<Keep> needed;

  bool operator()(const amp::Policy& policy) const {
    if (policy.compute == numerics::Format::fp32) {
      return true;
    }
    for (const Keep& one : needed) {
      if (!policy.rules.contains(one.operation + "@" + one.scope)) {
        return false;
      }
    }
    return true;
  }
};

Fake fake(int num_scopes, const std::vector<Keep>& needed) {
  Fake result{{}, needed};
  for (int i = 0; i < num_scopes; ++i) {
    for (const char* operation : {"aten::mm", "aten::exp", "aten::mul", "aten::sum"}) {
      result.all.push_back({std::string(1, static_cast<char>('a' + i)), operation});
    }
  }
  return result;
}

TEST(Recommend, FindsSeveralThatAreNeededTogether) {
  const std::vector<Keep> needed = {{"b", "aten::exp"}, {"c", "aten::mm"}, {"g", "aten::sum"}};
  const Fake step = fake(8, needed);
  const Recommendation cure = recommend(amp::find_policy("torch"), step.all, step);
  EXPECT_EQ(cure.keep, needed);
  EXPECT_THAT(cure.why, HasSubstr("fails without any one of them"));
}

// Junker's bound for k of n: 2 k log2(n / k) + 2 k; here 2 of 16 scopes, then 2 of 8 operations.
// Before that the policy, all in FP32, and all candidates.
TEST(Recommend, TriesFewPolicies) {
  const Fake step = fake(16, {{"b", "aten::exp"}, {"k", "aten::mm"}});
  const Recommendation cure = recommend(amp::find_policy("torch"), step.all, step);
  EXPECT_EQ(cure.keep.size(), 2U);
  EXPECT_LE(cure.trials, 3 + 16 + 12);
}

TEST(Recommend, KeepsMoreWhereTrialsRunOutAndSaysSo) {
  const Fake step = fake(16, {{"b", "aten::exp"}, {"k", "aten::mm"}});
  const Recommendation cure =
      recommend(amp::find_policy("torch"), step.all, step, {.max_trials = 10});
  EXPECT_LE(cure.trials, 10);
  EXPECT_GT(cure.keep.size(), 2U);
  EXPECT_TRUE(step(cure.policy));
  EXPECT_THAT(cure.why, HasSubstr("trials were too few to show that less will do"));
}

TEST(Recommend, WhereCandidatesAreNotEnoughEverythingIsKept) {
  const Fake step = fake(1, {{"z", "aten::mm"}});
  const Recommendation cure = recommend(amp::find_policy("torch"), step.all, step);
  EXPECT_THAT(cure.keep, ElementsAre(Keep{"", ""}));
  EXPECT_EQ(cure.policy.compute, numerics::Format::fp32);
  EXPECT_EQ(cure.why, "well with all in FP32, and not with the 4 candidates in FP32 alone");
}

// Well with all of them and with none of its halves: more than one would think is needed.
TEST(Recommend, WhatItReturnsIsWellAlsoWhereLessIsWorse) {
  const auto capricious = [](const amp::Policy& policy) {
    return policy.compute == numerics::Format::fp32 || policy.rules.size() == 4 ||
           policy.rules.size() == 2;
  };
  const Recommendation cure = recommend(amp::find_policy("torch"), fake(1, {}).all, capricious);
  EXPECT_TRUE(capricious(cure.policy));
}

TEST(Recommend, AStepThatThrowsIsNotWell) {
  const auto throws = [](const amp::Policy&) -> bool { throw std::runtime_error("no such mix"); };
  const Recommendation cure = recommend(amp::find_policy(kFp16), {{"", "aten::mm"}}, throws);
  EXPECT_EQ(cure.curable, Curable::not_by_precision);
  EXPECT_THAT(cure.why, HasSubstr("; it threw: no such mix"));
}

TEST(Recommend, RefusesWhatNoPolicyHolds) {
  const auto is_well = [](const amp::Policy&) { return false; };
  const amp::Policy policy = amp::find_policy("torch");
  EXPECT_THROW((void)recommend(policy, {{"a", "aten::mmm"}}, is_well), InvalidArgument);
  EXPECT_THROW((void)recommend(policy, {{"", "aten::add_"}}, is_well), InvalidArgument);
  try {
    (void)recommend(policy, {}, is_well, {.max_trials = 3});
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "recommend: max_trials is 3; pass 8 or more");
  }
}

}  // namespace
}  // namespace mantissa::train
