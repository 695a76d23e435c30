#include "mantissa/genome/markov.h"

#include <cmath>
#include <filesystem>
#include <map>

#include <gmock/gmock.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/base/random.h"
#include "mantissa/base/scratch_folder.h"
#include "mantissa/genome/alphabet.h"

namespace mantissa::genome {
namespace {

Genome bundled(const std::string& name) {
  const ScratchFolder folder;
  const auto path = folder.path() / name;
  std::filesystem::copy(std::filesystem::path(MANTISSA_SOURCE_DIR) / "data" / name, path);
  return Genome::open(path);
}

// Trained on the first 90 %, tested on the last 10 %.
MarkovResult of_last_tenth(const Genome& genome, const MarkovOptions& options = {}) {
  const uint64_t size = genome.num_bases();
  const uint64_t cut = size * 9 / 10;
  return markov(genome, {{0, 0, cut}}, {{0, cut, size}}, options);
}

// The definition, word by word in a map.
double by_definition(const std::string& train, const std::string& test, size_t order,
                     double shrinkage) {
  std::vector<uint8_t> other(train.begin(), train.end());
  reverse_complement_(other);
  std::map<std::string, double> counts;
  for (const std::string& strand : {train, std::string(other.begin(), other.end())}) {
    for (size_t length = 1; length <= order + 1; ++length) {
      for (size_t i = 0; i + length <= strand.size(); ++i) {
        ++counts[strand.substr(i, length)];
      }
    }
  }
  double bits = 0;
  for (size_t i = 0; i < test.size(); ++i) {
    double p = 0.25;
    for (size_t k = 0; k <= std::min(order, i); ++k) {
      const std::string context = test.substr(i - k, k);
      double total = 0;
      for (const char base : std::string("ACGT")) {
        total += counts[context + base];
      }
      p = (counts[context + test[i]] + shrinkage * p) / (total + shrinkage);
    }
    bits -= std::log2(p);
  }
  return bits / static_cast<double>(test.size());
}

// The numbers were computed beforehand by another program for the same definition.
TEST(Markov, GivesTheKnownNumbersOfTheBundledGenomes) {
  const MarkovResult lambda = of_last_tenth(bundled("lambda.fa"));
  EXPECT_EQ(lambda.best_order(), 3);
  EXPECT_NEAR(lambda.best(), 1.978, 0.0005);
  EXPECT_NEAR(lambda.bits_per_base[0], 2.001, 0.0005);
  EXPECT_NEAR(lambda.bits_per_base[4], 1.978, 0.0005);
  EXPECT_EQ(lambda.num_scored, 4851U);
  const MarkovResult phix = of_last_tenth(bundled("phix174.fa"));
  EXPECT_EQ(phix.best_order(), 2);
  EXPECT_NEAR(phix.best(), 1.961, 0.0005);
  EXPECT_NEAR(phix.bits_per_base[0], 1.995, 0.0005);
}

// Small enough that high orders use the sorted list and low ones the table.
TEST(Markov, AgreesWithTheDefinition) {
  const uint64_t seed = 9;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Random random(seed, 0);
  std::string text = "A";
  for (int i = 0; i < 700; ++i) {
    // A base depends on the one before, so that context helps.
    text += random.below(3) == 0 ? "ACGT"[random.below(4)] : text.back();
  }
  const Genome genome = Genome::parse(">a\n" + text + "\n");
  const MarkovResult result =
      markov(genome, {{0, 0, 500}}, {{0, 500, 701}}, {.max_order = 12, .shrinkage = 3});
  ASSERT_EQ(result.bits_per_base.size(), 13U);
  for (size_t order = 0; order <= 12; ++order) {
    // Sums of 201 terms in the same order with other rounding: 201 * 2 * 2^-53 is below 1e-13.
    EXPECT_NEAR(result.bits_per_base[order],
                by_definition(text.substr(0, 500), text.substr(500), order, 3), 1e-12)
        << order;
  }
}

TEST(Markov, CountsBothStrands) {
  const Genome genome = Genome::parse(">a\nAAAAAAAAAAAAAAAAAAAAAAAA\n>b\nTTTTTTTT\n");
  const MarkovResult result = markov(genome, {{0, 0, 24}}, {{1, 0, 8}}, {.max_order = 1});
  EXPECT_LT(result.best(), 1.2);
}

TEST(Markov, NeitherCountsNorScoresUnknownLetters) {
  const Genome genome = Genome::parse(">a\nACGTTGCA\n>b\nACGT\n>c\nACNNGTR\n>d\nAC\n>e\nGT\n");
  const std::vector<Interval> train = {{0, 0, 8}};
  const MarkovResult broken = markov(genome, train, {{2, 0, 7}}, {.max_order = 2});
  const MarkovResult pieces = markov(genome, train, {{3, 0, 2}, {4, 0, 2}}, {.max_order = 2});
  EXPECT_EQ(broken.num_scored, 4U);
  EXPECT_EQ(broken.bits_per_base, pieces.bits_per_base);
  const MarkovResult counted =
      markov(genome, {{3, 0, 2}, {4, 0, 2}}, {{1, 0, 4}}, {.max_order = 2});
  EXPECT_EQ(markov(genome, {{2, 0, 7}}, {{1, 0, 4}}, {.max_order = 2}).bits_per_base,
            counted.bits_per_base);
}

TEST(Markov, RefusesSettingsOutOfRange) {
  const Genome genome = Genome::parse(">a\nACGT\n>n\nNNNN\n");
  const std::vector<Interval> all = {{0, 0, 4}};
  const auto error = [&](const std::vector<Interval>& test, const MarkovOptions& options) {
    return message_of<InvalidArgument>([&] { (void)markov(genome, all, test, options); });
  };
  EXPECT_EQ(error(all, {.max_order = 13}), "markov: max_order 13; valid: 0 to 12");
  EXPECT_EQ(error(all, {.max_order = -1}), "markov: max_order -1; valid: 0 to 12");
  EXPECT_EQ(error(all, {.shrinkage = 0}), "markov: shrinkage 0; valid: more than 0");
  EXPECT_EQ(error({{1, 0, 4}}, {}),
            "markov: no base A, C, G or T to score; give intervals that hold some");
}

}  // namespace
}  // namespace mantissa::genome
