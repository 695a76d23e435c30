#include "mantissa/genome/markov_chain.h"

#include <cmath>
#include <numbers>

#include <gmock/gmock.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/base/random.h"
#include "mantissa/genome/markov.h"

namespace mantissa::genome {
namespace {

// Against markov(), which gives the mean over all bases of an interval.
TEST(MarkovChain, HasTheProbabilitiesThatMarkovScoresWith) {
  Random random(7, 0);
  std::string text;
  for (int i = 0; i < 3000; ++i) {
    text += i % 500 == 499 ? 'N' : "ACGT"[random.below(1 + random.below(4))];
  }
  const Genome genome = Genome::parse(">a\n" + text + "\n");
  const std::vector<Interval> train = {{0, 0, 2000}};
  const MarkovResult expected = markov(genome, train, {{0, 2000, 3000}}, {.max_order = 5});
  for (int order = 0; order <= 5; ++order) {
    const MarkovChain chain(genome, train, order);
    double sum = 0;
    uint64_t count = 0;
    for (const double p : chain.log_probabilities(text.substr(2000))) {
      if (!std::isnan(p)) {
        sum -= p / std::numbers::ln2;
        ++count;
      }
    }
    EXPECT_EQ(count, expected.num_scored);
    // Sums of 998 terms below 4 in another unit: 998 * 2^-53 * 4 each way, over 998.
    EXPECT_NEAR(sum / static_cast<double>(count),
                expected.bits_per_base[static_cast<size_t>(order)], 1e-12);
  }
}

TEST(MarkovChain, StartsAgainAfterALetterThatIsNoBase) {
  const Genome genome = Genome::parse(">a\nACACACACACACGT\n");
  const MarkovChain chain(genome, {{0, 0, 14}}, 3);
  const std::vector<double> p = chain.log_probabilities("ACNAC");
  EXPECT_TRUE(std::isnan(p[2]));
  EXPECT_EQ(p[3], p[0]);
  EXPECT_EQ(p[4], p[1]);
  double total = 0;
  for (const char* word : {"ACA", "ACC", "ACG", "ACT"}) {
    total += std::exp(chain.log_probabilities(word)[2]);
  }
  EXPECT_NEAR(total, 1, 1e-14);
}

TEST(MarkovChain, RefusesAnOrderOutOfRange) {
  const Genome genome = Genome::parse(">a\nACGT\n");
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              MarkovChain(genome, {{0, 0, 4}}, 13);
            }),
            "markov: order 13; valid: 0 to 12");
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              MarkovChain(genome, {{0, 0, 4}}, 2, 0);
            }),
            "markov: shrinkage 0; valid: more than 0");
}

}  // namespace
}  // namespace mantissa::genome
