#include "mantissa/data/evaluation.h"

#include <algorithm>

#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/data/genome_dataset.h"

namespace mantissa::data {
namespace {

using genome::Genome;

std::shared_ptr<const Dataset> example(Objective objective) {
  const auto genome =
      std::make_shared<const Genome>(Genome::parse(">a\nAACCGGTTACGTACGTTGCAACGTA\n"));
  return std::make_shared<GenomeDataset>(
      genome, std::vector<genome::Interval>{{0, 0, 25}},
      GenomeDatasetOptions{.context = 4, .objective = objective, .scoring = Scoring::once});
}

TEST(Evaluation, GoesThroughAllWindowsInOrderAndTheLastBatchIsSmaller) {
  const EvaluationBatches pass(example(Objective::causal), {.batch = 4});
  ASSERT_EQ(pass.size(), 2U);
  uint64_t begin = 0;
  for (uint64_t i = 0; i < pass.size(); ++i) {
    const Batch batch = pass.batch(i);
    EXPECT_EQ(batch.index, i);
    EXPECT_EQ(batch.tokens.size(0), i == 0 ? 4 : 2);
    for (const Position& position : batch.positions) {
      EXPECT_EQ(position.bases.begin, begin);
      begin += 4;
    }
  }
  EXPECT_EQ(begin, 24U);
}

TEST(Evaluation, EveryPassIsTheSameAlsoWhatIsMasked) {
  const EvaluationBatches one(example(Objective::masked), {.batch = 3});
  const EvaluationBatches other(example(Objective::masked), {.batch = 3});
  for (uint64_t i = 0; i < one.size(); ++i) {
    EXPECT_TRUE(at::equal(one.batch(i).tokens, other.batch(i).tokens));
    EXPECT_TRUE(at::equal(one.batch(i).targets, other.batch(i).targets));
  }
}

// Six windows of five bases, four bases apart.
TEST(Evaluation, TellsWhichBasesItLooksAt) {
  using Intervals = std::vector<genome::Interval>;
  const auto bases = [](const EvaluationOptions& options) {
    return EvaluationBatches(example(Objective::causal), options).bases();
  };
  EXPECT_EQ(bases({.batch = 4}), (Intervals{{0, 0, 25}}));
  EXPECT_EQ(bases({.batch = 1, .windows = 2}), (Intervals{{0, 0, 5}, {0, 12, 17}}));
  EXPECT_EQ(bases({.batch = 2, .windows = 4}), (Intervals{{0, 0, 9}, {0, 12, 21}}));
  EXPECT_EQ(bases({.batch = 2, .windows = 100}), (Intervals{{0, 0, 25}}));
}

TEST(Evaluation, LooksAtTheSameWindowsWhateverTheBatch) {
  for (int64_t windows = 0; windows <= 8; ++windows) {
    std::vector<std::vector<uint64_t>> seen;
    for (const int64_t batch : {1, 2, 3, 4, 7}) {
      const EvaluationBatches pass(example(Objective::causal),
                                   {.batch = batch, .windows = windows});
      std::vector<uint64_t>& begins = seen.emplace_back();
      for (uint64_t i = 0; i < pass.size(); ++i) {
        for (const Position& position : pass.batch(i).positions) {
          begins.push_back(position.bases.begin);
        }
      }
    }
    EXPECT_EQ(seen.front().size(), windows == 0 ? 6U : std::min<uint64_t>(6, windows));
    for (const std::vector<uint64_t>& begins : seen) {
      EXPECT_EQ(begins, seen.front());
    }
  }
}

TEST(Evaluation, RefusesWhatIsOutOfRange) {
  const auto error = [](auto call) -> std::string {
    try {
      call();
    } catch (const InvalidArgument& e) {
      return e.what();
    }
    return "nothing thrown";
  };
  EXPECT_EQ(error([] { const EvaluationBatches pass(nullptr, {}); }),
            "evaluation: no dataset; make one first");
  EXPECT_EQ(error([] { const EvaluationBatches pass(example(Objective::causal), {.batch = 0}); }),
            "evaluation: batch 0; valid: 1 or more windows");
  EXPECT_EQ(
      error([] { const EvaluationBatches pass(example(Objective::causal), {.windows = -1}); }),
      "evaluation: windows -1; valid: 0 (all) or more");
  EXPECT_EQ(error([] { EvaluationBatches(example(Objective::causal), {.batch = 6}).batch(1); }),
            "evaluation: batch 1 of 1; valid: 0 to 0");
}

}  // namespace
}  // namespace mantissa::data
