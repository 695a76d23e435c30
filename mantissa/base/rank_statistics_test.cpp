#include "mantissa/base/rank_statistics.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/base/random.h"

namespace mantissa {
namespace {

using ::testing::ElementsAre;

TEST(MidRanks, OfTiesAreTheMean) {
  EXPECT_THAT(mid_ranks(std::vector<double>{3, 1, 3, 2, 3}), ElementsAre(4, 1, 4, 2, 4));
  EXPECT_THAT(mid_ranks(std::vector<double>{}), ElementsAre());
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_THAT(mid_ranks(std::vector<double>{infinity, -infinity, 0}), ElementsAre(3, 1, 2));
}

TEST(Spearman, LooksAtTheOrderAlone) {
  const std::vector<double> a = {1, 2, 3, 4};
  EXPECT_DOUBLE_EQ(spearman(a, std::vector<double>{1, 10, 11, 500}), 1);
  EXPECT_DOUBLE_EQ(spearman(a, std::vector<double>{9, 8, 3, 2}), -1);
  // Ranks 1 2 3 4 and 1 2.5 2.5 4: 1 - 6 * 0.5 / 60 holds without ties only; Pearson's of these is
  // 4.5 / sqrt(5 * 4.5).
  EXPECT_DOUBLE_EQ(spearman(a, std::vector<double>{0, 5, 5, 6}), 4.5 / std::sqrt(22.5));
}

TEST(Spearman, IsNaNWithoutTwoDifferentValues) {
  EXPECT_TRUE(std::isnan(spearman(std::vector<double>{1}, std::vector<double>{1})));
  EXPECT_TRUE(std::isnan(spearman(std::vector<double>{1, 1}, std::vector<double>{1, 2})));
  EXPECT_EQ(message_of<InvalidArgument>([] {
              (void)spearman(std::vector<double>{1, 1}, std::vector<double>{1});
            }),
            "spearman: 2 and 1 values; give pairs");
}

// The definition, and DeLong's structural components, by all pairs.
Estimate auroc_by_pairs(const std::vector<double>& positive, const std::vector<double>& negative) {
  const auto psi = [](double x, double y) { return x > y ? 1.0 : x == y ? 0.5 : 0.0; };
  std::vector<double> v10(positive.size());
  std::vector<double> v01(negative.size());
  double area = 0;
  for (size_t i = 0; i < positive.size(); ++i) {
    for (size_t j = 0; j < negative.size(); ++j) {
      const double one = psi(positive[i], negative[j]);
      v10[i] += one / static_cast<double>(negative.size());
      v01[j] += one / static_cast<double>(positive.size());
      area += one;
    }
  }
  area /= static_cast<double>(positive.size() * negative.size());
  const auto variance = [&](const std::vector<double>& v) {
    double sum = 0;
    for (const double x : v) {
      sum += (x - area) * (x - area);
    }
    return sum / static_cast<double>(v.size() - 1) / static_cast<double>(v.size());
  };
  const double half = 1.959963984540054 * std::sqrt(variance(v10) + variance(v01));
  return {area, std::max(0.0, area - half), std::min(1.0, area + half)};
}

TEST(Auroc, IsThatOfAllPairsWithTies) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed, 0);
    std::vector<double> positive(2 + random.below(30));
    std::vector<double> negative(2 + random.below(30));
    for (double& value : positive) {
      value = static_cast<double>(random.below(8)) + 1;  // of few values: many ties
    }
    for (double& value : negative) {
      value = static_cast<double>(random.below(8));
    }
    const Estimate expected = auroc_by_pairs(positive, negative);
    const Estimate found = auroc(positive, negative);
    // Sums of at most 32 terms, each of a few roundings.
    EXPECT_NEAR(found.value, expected.value, 64 * 0x1p-53);
    EXPECT_NEAR(found.low, expected.low, 1e-14);
    EXPECT_NEAR(found.high, expected.high, 1e-14);
  }
}

TEST(Auroc, OfAllTiesIsAHalfAndOfSeparatedValuesOne) {
  const std::vector<double> same = {2, 2, 2};
  EXPECT_EQ(auroc(same, same).value, 0.5);
  const std::vector<double> low = {0, 1};
  EXPECT_EQ(auroc(same, low).value, 1);
  EXPECT_EQ(auroc(same, low).low, 1);
  EXPECT_EQ(auroc(low, same).value, 0);
}

TEST(Auroc, HasNoIntervalOfOneValueAndNothingOfNone) {
  const std::vector<double> one = {1};
  const std::vector<double> two = {0, 2};
  EXPECT_EQ(auroc(one, two).value, 0.5);
  EXPECT_TRUE(std::isnan(auroc(one, two).low));
  EXPECT_TRUE(std::isnan(auroc({}, two).value));
}

}  // namespace
}  // namespace mantissa
