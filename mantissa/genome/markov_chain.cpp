#include "mantissa/genome/markov_chain.h"

#include <cmath>

#include "mantissa/base/error.h"
#include "mantissa/genome/alphabet.h"
#include "mantissa/genome/word_counts.h"

namespace mantissa::genome {

class MarkovChain::Counts {
 public:
  Counts(const Genome& genome, const std::vector<Interval>& train, int order) {
    uint64_t num_bases = 0;
    for (const Interval& interval : train) {
      num_bases += interval.size();
    }
    MANTISSA_CHECK(num_bases <= std::numeric_limits<uint32_t>::max(), Unsupported,
                   "markov: ", num_bases, " bases to count; at most ",
                   std::numeric_limits<uint32_t>::max());
    for (int length = 1; length <= order + 1; ++length) {
      of_length.emplace_back(genome, train, length, num_bases);
    }
  }

  std::vector<WordCounts> of_length;  // at index k: words of k + 1 bases
};

MarkovChain::MarkovChain(const Genome& genome, const std::vector<Interval>& train, int order,
                         double shrinkage)
    : order_(order), shrinkage_(shrinkage) {
  MANTISSA_CHECK(0 <= order && order <= kMaxMarkovOrder, InvalidArgument, "markov: order ", order,
                 "; valid: 0 to ", kMaxMarkovOrder);
  MANTISSA_CHECK(shrinkage > 0 && std::isfinite(shrinkage), InvalidArgument, "markov: shrinkage ",
                 shrinkage, "; valid: more than 0");
  counts_ = std::make_unique<const Counts>(genome, train, order);
}

MarkovChain::MarkovChain(MarkovChain&&) noexcept = default;
MarkovChain& MarkovChain::operator=(MarkovChain&&) noexcept = default;
MarkovChain::~MarkovChain() = default;

std::vector<double> MarkovChain::log_probabilities(std::string_view letters) const {
  std::vector<double> result;
  result.reserve(letters.size());
  Word history = 0;
  size_t known = 0;
  for (const char letter : letters) {
    const uint8_t base = base_number(static_cast<uint8_t>(letter));
    if (base == kNoBase) {
      known = 0;
      result.push_back(std::numeric_limits<double>::quiet_NaN());
      continue;
    }
    double p = 0.25;
    for (size_t order = 0; order <= std::min(known, static_cast<size_t>(order_)); ++order) {
      const Word context = history & static_cast<Word>((uint64_t{1} << 2 * order) - 1);
      p = smoothed(counts_->of_length[order].after(context), base, p, shrinkage_);
    }
    result.push_back(std::log(p));
    history = history << 2 | base;
    ++known;
  }
  return result;
}

}  // namespace mantissa::genome
