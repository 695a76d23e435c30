#include "mantissa/train/skip_explanation.h"

#include <vector>

#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mantissa/genome/genome.h"

namespace mantissa::train {
namespace {

using ::testing::EndsWith;

// Rows of one token; the product with a row's token is FP16, and overflows beyond 65504.
struct Step {
  tensor::ParameterList parameters = {{"w", at::ones({1, 1}).requires_grad_()}};
  data::Batch batch;

  explicit Step(const std::vector<int64_t>& tokens) {
    const auto rows = static_cast<int64_t>(tokens.size());
    batch.tokens = at::zeros({rows, 1}, at::kLong);
    batch.targets = at::zeros({rows, 1}, at::kLong);
    for (int64_t i = 0; i < rows; ++i) {
      batch.tokens[i].fill_(tokens[i]);
      const auto begin = static_cast<uint64_t>(10 * i);
      batch.positions.push_back({{0, begin, begin + 10}, genome::Strand::forward});
    }
  }

  SkipExplanation explanation() const {
    return explain_skip(
        parameters, {batch}, {monitor::ReplayPoint()}, 1, [this](const data::Batch& rows) {
          const at::Tensor x = rows.tokens.to(at::kHalf);
          return at::mm(x.mul(100), parameters[0].value.to(at::kHalf)).sum(at::kFloat);
        });
  }
};

TEST(SkipExplanation, NamesTheOneSequenceThatShowsIt) {
  const SkipExplanation skip = Step({1, 2, 3, 4, 5, 1000, 6}).explanation();
  EXPECT_EQ(skip.reason.cause, monitor::SkipCause::forward);
  EXPECT_EQ(skip.begin, 5U);
  EXPECT_EQ(skip.end, 6U);
}

TEST(SkipExplanation, OfSeveralThatShowItTheFirst) {
  const SkipExplanation skip = Step({1, 2, 1000, 3, 1000, 4}).explanation();
  EXPECT_EQ(skip.begin, 2U);
  EXPECT_EQ(skip.end, 3U);
}

TEST(SkipExplanation, WhatEverySequenceShowsIsNoFaultOfOne) {
  const SkipExplanation skip = Step({1000, 1001, 1002, 1003}).explanation();
  EXPECT_EQ(skip.begin, 0U);
  EXPECT_EQ(skip.end, 4U);
}

// 50000 each: one fits, the gradient of the shared weight, which is their sum, does not.
TEST(SkipExplanation, WhatTakesThemTogetherIsOfNone) {
  const SkipExplanation skip = Step({500, 500, 500, 500}).explanation();
  EXPECT_EQ(skip.reason.cause, monitor::SkipCause::backward);
  EXPECT_EQ(skip.begin, 0U);
  EXPECT_EQ(skip.end, 4U);
}

TEST(SkipExplanation, SaysWhichBases) {
  const genome::Genome genome = genome::Genome::open(MANTISSA_SOURCE_DIR "/data/lambda.fa");
  const Step one({1, 1000, 2});
  EXPECT_THAT(describe(one.explanation(), {one.batch}, genome),
              EndsWith("; in NC_001416.1:11-20 alone"));
  const Step all({1000, 1000});
  EXPECT_THAT(describe(all.explanation(), {all.batch}, genome),
              EndsWith("; 2 sequences from NC_001416.1:1-10 on"));
  const Step well({1, 2});
  EXPECT_EQ(describe(well.explanation(), {well.batch}, genome),
            "all is finite when the step runs again");
}

}  // namespace
}  // namespace mantissa::train
