#include "mantissa/train/allele_scorer.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <gmock/gmock.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/base/random.h"
#include "mantissa/genome/variant.h"
#include "mantissa/train/tiny_run_test.h"

namespace mantissa::train {
namespace {

using genome::AlleleWindow;
using genome::AlleleWindows;

constexpr int64_t kContext = 32;

class AlleleScorerTest : public TinyRunTest {
 protected:
  static tensor::StateDict first_state(const RunConfig& run) {
    Learner learner(run);
    tensor::StateDict state;
    state.merge("learner", learner.state_dict());
    return state;
  }

  RunConfig masked() const { return config({{"data.objective", "masked"}}); }

  // Of a record of one alternative in a random contig.
  AlleleWindows windows(uint64_t position, const std::string& ref, const std::string& alt,
                        const AlleleScorer& scorer) const {
    const std::string line =
        "a\t" + std::to_string(position) + "\t.\t" + ref + "\t" + alt + "\t.\t.\t.";
    const auto checked = check_variant(genome_, genome::parse_variant(line, "x"));
    EXPECT_FALSE(checked.alleles[0].unscored) << line;
    return allele_windows(genome_, checked.alleles[0].allele, scorer.window_bases());
  }

  std::string letters(uint64_t position, uint64_t count) const {
    return contig_.substr(position - 1, count);
  }

  // Substitutions, insertions and deletions, all over the contig.
  std::vector<AlleleWindows> many(const AlleleScorer& scorer) const {
    std::vector<AlleleWindows> result;
    for (uint64_t position = 8; position < 190; position += 7) {
      const std::string base = letters(position, 1);
      result.push_back(windows(position, base, base == "A" ? "C" : "A", scorer));
      result.push_back(windows(position, base, base + "ACG", scorer));
      result.push_back(windows(position, letters(position, 3), base, scorer));
    }
    return result;
  }

  static std::string random_contig() {
    Random random(11, 0);
    std::string contig;
    for (int i = 0; i < 200; ++i) {
      contig += "ACGT"[random.below(4)];
    }
    return contig;
  }

  const std::string contig_ = random_contig();
  const genome::Genome genome_ = genome::Genome::parse(">a\n" + contig_ + "\n");
};

data::Batch batch_of(const std::string& letters) {
  std::vector<int64_t> tokens(letters.size());
  data::encode({reinterpret_cast<const uint8_t*>(letters.data()), letters.size()}, tokens);
  const auto count = static_cast<int64_t>(letters.size()) - 1;
  data::Batch batch;
  batch.tokens = at::empty({1, count}, at::kLong);
  batch.targets = at::empty({1, count}, at::kLong);
  std::copy_n(tokens.begin(), count, batch.tokens.mutable_data_ptr<int64_t>());
  std::copy_n(tokens.begin() + 1, count, batch.targets.mutable_data_ptr<int64_t>());
  return batch;
}

// Against the loss that a training step has for the same windows.
TEST_F(AlleleScorerTest, OfACausalModelIsTheDifferenceOfTheLosses) {
  const RunConfig run = config();
  const tensor::StateDict state = first_state(run);
  const RunModel model(run, state);
  const AlleleScorer scorer(model, data::Objective::causal, kContext);
  EXPECT_EQ(scorer.window_bases(), 33U);
  Learner learner(run);
  const at::NoGradGuard no_grad;
  for (const AlleleWindows& one : many(scorer)) {
    const AlleleScore score = scorer.score(one);
    for (size_t strand = 0; strand < 2; ++strand) {
      const auto loss = [&](const std::string& letters) {
        return forward_loss(learner.parts(), batch_of(letters), models::Mode::evaluation)
            .item<double>();
      };
      const double reference = loss(one.strands.at(strand).reference);
      const double alternative = loss(one.strands.at(strand).alternative);
      const double expected = (reference - alternative) * kContext;
      // Each loss is a mean of 32 FP32 terms of log-softmax over 16: gamma of 32 + 16 + a few, and
      // so are the logits, sums of 16 to 64 FP32 products in another order.
      const double tolerance = (32 + 16 + 64 + 16) * 0x1p-24 * (reference + alternative) * kContext;
      EXPECT_NEAR(strand == 0 ? score.forward : score.reverse, expected, tolerance);
    }
    EXPECT_EQ(score.mean(), (score.forward + score.reverse) / 2);
  }
}

// The promise: bit-equal alone, repeated, and in any order among others.
TEST_F(AlleleScorerTest, DependsOnNoNeighbour) {
  for (const char* compute : {"fp32", "bf16"}) {
    for (const char* objective : {"causal", "masked"}) {
      SCOPED_TRACE(testing::Message() << compute << " " << objective);
      const RunConfig run = config({{"precision.compute", compute}, {"data.objective", objective}});
      const RunModel model(run, first_state(run));
      const AlleleScorer scorer(model, data::parse_objective(objective), kContext);
      const std::vector<AlleleWindows> all = many(scorer);
      std::vector<AlleleScore> in_order;
      for (const AlleleWindows& one : all) {
        in_order.push_back(scorer.score(one));
        EXPECT_TRUE(std::isfinite(in_order.back().mean()));
      }
      EXPECT_NE(in_order[0], in_order[3]);
      std::vector<size_t> order(all.size());
      std::iota(order.begin(), order.end(), size_t{0});
      Random random(5, 0);
      for (size_t i = order.size(); i > 1; --i) {
        std::swap(order[i - 1], order[random.below(i)]);
      }
      for (const size_t i : order) {
        EXPECT_EQ(scorer.score(all[i]), in_order[i]) << i;
      }
      const RunModel again(run, first_state(run));
      const AlleleScorer alone(again, data::parse_objective(objective), kContext);
      EXPECT_EQ(alone.score(all.back()), in_order.back());
    }
  }
}

// log p of the token at a place of a window in which it is hidden, of one row by itself.
double hidden_log_p(const RunModel& model, const std::string& letters, size_t place,
                    const std::vector<size_t>& hidden, char letter) {
  std::vector<int64_t> tokens(letters.size());
  data::encode({reinterpret_cast<const uint8_t*>(letters.data()), letters.size()}, tokens);
  for (const size_t i : hidden) {
    tokens[i] = data::kMask;
  }
  at::Tensor row = at::empty({1, static_cast<int64_t>(tokens.size())}, at::kLong);
  std::ranges::copy(tokens, row.mutable_data_ptr<int64_t>());
  const auto token = data::token_of(static_cast<uint8_t>(letter));
  return model.log_probabilities(row)
      .select(0, 0)
      .select(0, static_cast<int64_t>(place))
      .select(0, token)
      .item<double>();
}

// FP32 logits of one row and of several: sums of 16 to 64 products in another order, of size 1.
constexpr double kRowsTolerance = 1e-4;

TEST_F(AlleleScorerTest, OfAMaskedModelHidesTheBasesThatDiffer) {
  const RunConfig run = masked();
  const RunModel model(run, first_state(run));
  const AlleleScorer scorer(model, data::Objective::masked, kContext);
  EXPECT_EQ(scorer.window_bases(), 32U);
  // Three bases of which the middle one stays.
  const std::string ref = letters(90, 3);
  const auto other = [](char base) { return base == 'A' ? 'C' : 'A'; };
  const std::string alt = {other(ref[0]), ref[1], other(ref[2])};
  const AlleleWindows one = windows(90, ref, alt, scorer);
  const AlleleScore score = scorer.score(one);
  for (size_t strand = 0; strand < 2; ++strand) {
    const AlleleWindow& window = one.strands.at(strand);
    double expected = 0;
    for (const size_t place : {window.begin, window.begin + 2}) {
      const std::vector<size_t> hidden = {window.begin, window.begin + 2};
      expected += hidden_log_p(model, window.reference, place, hidden, window.alternative[place]) -
                  hidden_log_p(model, window.reference, place, hidden, window.reference[place]);
    }
    EXPECT_NEAR(strand == 0 ? score.forward : score.reverse, expected, kRowsTolerance);
    EXPECT_GT(std::abs(expected), 100 * kRowsTolerance);
  }
}

TEST_F(AlleleScorerTest, OfAMaskedModelAndAnIndelHidesEachBaseAroundItByItself) {
  const RunConfig run = masked();
  const RunModel model(run, first_state(run));
  const AlleleScorer scorer(model, data::Objective::masked, kContext);
  const AlleleWindows one = windows(90, letters(90, 4), letters(90, 1), scorer);
  const AlleleScore score = scorer.score(one);
  for (size_t strand = 0; strand < 2; ++strand) {
    const AlleleWindow& window = one.strands.at(strand);
    ASSERT_EQ(window.reference_span, window.alternative_span + 3);
    double expected = 0;
    for (size_t place = window.begin - AlleleScorer::kFlank;
         place < window.begin + window.reference_span + AlleleScorer::kFlank; ++place) {
      expected +=
          hidden_log_p(model, window.alternative, place, {place}, window.alternative[place]) -
          hidden_log_p(model, window.reference, place, {place}, window.reference[place]);
    }
    EXPECT_NEAR(strand == 0 ? score.forward : score.reverse, expected, 20 * kRowsTolerance);
    EXPECT_GT(std::abs(expected), 100 * kRowsTolerance);
  }
}

TEST_F(AlleleScorerTest, BasesThatAreNoneAreNotScored) {
  const RunConfig run = config();
  const RunModel model(run, first_state(run));
  const AlleleScorer scorer(model, data::Objective::causal, kContext);
  AlleleWindows one = windows(90, letters(90, 1), letters(90, 1) == "A" ? "C" : "A", scorer);
  for (AlleleWindow& window : one.strands) {
    window.reference[30] = 'N';
    window.alternative[30] = 'R';
  }
  EXPECT_TRUE(std::isfinite(scorer.score(one).mean()));
}

TEST_F(AlleleScorerTest, IsNotFiniteWhereTheNetworkIsNot) {
  for (const char* objective : {"causal", "masked"}) {
    const RunConfig run = config({{"data.objective", objective}});
    Learner learner(run);
    const at::NoGradGuard no_grad;
    for (const tensor::Parameter& parameter : learner.model().parameters()) {
      if (parameter.name == "final_norm.weight") {
        parameter.value.fill_(INFINITY);
      }
    }
    tensor::StateDict state;
    state.merge("learner", learner.state_dict());
    const RunModel model(run, state);
    const AlleleScorer scorer(model, data::parse_objective(objective), kContext);
    for (const AlleleWindows& one : many(scorer)) {
      EXPECT_FALSE(std::isfinite(scorer.score(one).mean())) << objective;
    }
  }
}

TEST_F(AlleleScorerTest, RefusesAContextBelowTwo) {
  const RunConfig run = config();
  const RunModel model(run, first_state(run));
  EXPECT_EQ(message_of<InvalidArgument>([&] { AlleleScorer(model, data::Objective::causal, 1); }),
            "score: context 1; valid: 2 or more tokens");
}

}  // namespace
}  // namespace mantissa::train
