#include "mantissa/data/masking.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/random.h"
#include "mantissa/data/tokenizer.h"

namespace mantissa::data {
namespace {

using Tokens = std::vector<int64_t>;

Tokens random_bases(size_t size) {
  Random random(2, 0);
  Tokens tokens;
  for (size_t i = 0; i < size; ++i) {
    tokens.push_back(kA + static_cast<int64_t>(random.below(4)));
  }
  return tokens;
}

struct Masked {
  Tokens tokens;
  Tokens targets;
};

Masked masked(const Tokens& tokens, uint64_t number, const MaskingOptions& options = {}) {
  Masked result{tokens, Tokens(tokens.size(), 1)};
  mask_(result.tokens, result.targets, number, options);
  return result;
}

TEST(Masking, TargetsAreWhatTheChosenWereAndTheRestIsUntouched) {
  const Tokens original = random_bases(2000);
  const Masked result = masked(original, 3);
  for (size_t i = 0; i < original.size(); ++i) {
    if (result.targets[i] == kIgnore) {
      EXPECT_EQ(result.tokens[i], original[i]);
    } else {
      EXPECT_EQ(result.targets[i], original[i]);
      EXPECT_TRUE(result.tokens[i] == kMask || is_base(result.tokens[i]));
    }
  }
}

TEST(Masking, HasTheSharesOfBertWithinFiveStandardDeviations) {
  constexpr size_t kTokens = 200000;
  const Tokens original = random_bases(kTokens);
  const Masked result = masked(original, 0);
  double chosen = 0;
  double hidden = 0;
  double changed = 0;
  for (size_t i = 0; i < kTokens; ++i) {
    chosen += result.targets[i] != kIgnore ? 1 : 0;
    hidden += result.tokens[i] == kMask ? 1 : 0;
    changed += result.tokens[i] != kMask && result.tokens[i] != original[i] ? 1 : 0;
  }
  const auto near = [](double count, double trials, double p) {
    EXPECT_NEAR(count, trials * p, 5 * std::sqrt(trials * p * (1 - p)));
  };
  near(chosen, kTokens, 0.15);
  near(hidden, chosen, 0.8);
  near(changed, chosen, 0.1 * 0.75);  // a quarter of the random bases are the true ones
}

TEST(Masking, LeavesOtherTokensAlone) {
  const Tokens original = {kCls, kN, kUnk, kPad, kN, kMask};
  const Masked result = masked(original, 1, {.chosen = 1});
  EXPECT_EQ(result.tokens, original);
  EXPECT_EQ(result.targets, Tokens(original.size(), kIgnore));
}

TEST(Masking, IsAFunctionOfSeedAndNumber) {
  const Tokens original = random_bases(300);
  EXPECT_EQ(masked(original, 5).targets, masked(original, 5).targets);
  EXPECT_EQ(masked(original, 5).tokens, masked(original, 5).tokens);
  EXPECT_NE(masked(original, 5).targets, masked(original, 6).targets);
  EXPECT_NE(masked(original, 5).targets, masked(original, 5, {.seed = 1}).targets);
}

TEST(Masking, ObeysItsShares) {
  const Tokens original = random_bases(100);
  const Masked all = masked(original, 1, {.chosen = 1, .masked = 1, .replaced = 0});
  EXPECT_EQ(all.tokens, Tokens(100, kMask));
  EXPECT_EQ(all.targets, original);
  const Masked kept = masked(original, 1, {.chosen = 1, .masked = 0, .replaced = 0});
  EXPECT_EQ(kept.tokens, original);
  EXPECT_EQ(kept.targets, original);
}

TEST(Masking, RefusesSharesOutOfRange) {
  const auto error = [](const MaskingOptions& options) -> std::string {
    try {
      require_valid(options);
    } catch (const InvalidArgument& e) {
      return e.what();
    }
    return "nothing thrown";
  };
  EXPECT_EQ(error({}), "nothing thrown");
  EXPECT_EQ(error({.chosen = 0}), "masking: chosen 0; valid: more than 0, at most 1");
  EXPECT_EQ(error({.chosen = 1.5}), "masking: chosen 1.5; valid: more than 0, at most 1");
  EXPECT_EQ(error({.chosen = std::numeric_limits<double>::quiet_NaN()}),
            "masking: chosen nan; valid: more than 0, at most 1");
  EXPECT_EQ(error({.masked = 0.95}),
            "masking: masked 0.95 and replaced 0.1; valid: neither below 0, together at most 1");
  EXPECT_EQ(error({.replaced = -0.1}),
            "masking: masked 0.8 and replaced -0.1; valid: neither below 0, together at most 1");
}

TEST(Masking, RefusesTargetsOfAnotherSize) {
  Tokens tokens(3, kA);
  Tokens targets(2);
  try {
    mask_(tokens, targets, 0, {});
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "mask_: 3 tokens and 2 targets; give as many of both");
  }
}

}  // namespace
}  // namespace mantissa::data
