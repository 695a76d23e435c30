#include "mantissa/genome/markov.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "mantissa/base/error.h"
#include "mantissa/genome/word_counts.h"

namespace mantissa::genome {
namespace {

uint64_t total_size(const std::vector<Interval>& intervals) {
  uint64_t size = 0;
  for (const Interval& interval : intervals) {
    size += interval.size();
  }
  return size;
}

void require_valid(const MarkovOptions& options, uint64_t num_train) {
  MANTISSA_CHECK(0 <= options.max_order && options.max_order <= kMaxMarkovOrder, InvalidArgument,
                 "markov: max_order ", options.max_order, "; valid: 0 to ", kMaxMarkovOrder);
  MANTISSA_CHECK(options.shrinkage > 0 && std::isfinite(options.shrinkage), InvalidArgument,
                 "markov: shrinkage ", options.shrinkage, "; valid: more than 0");
  // A word and its reverse complement together occur at most once a base.
  MANTISSA_CHECK(num_train <= std::numeric_limits<uint32_t>::max(), Unsupported,
                 "markov: ", num_train, " bases to count; at most ",
                 std::numeric_limits<uint32_t>::max());
}

}  // namespace

int MarkovResult::best_order() const {
  return static_cast<int>(std::min_element(bits_per_base.begin(), bits_per_base.end()) -
                          bits_per_base.begin());
}

MarkovResult markov(const Genome& genome, const std::vector<Interval>& train,
                    const std::vector<Interval>& test, const MarkovOptions& options) {
  const uint64_t num_train = total_size(train);
  require_valid(options, num_train);
  std::vector<WordCounts> counts;
  for (int order = 0; order <= options.max_order; ++order) {
    counts.emplace_back(genome, train, order + 1, num_train);
  }

  MarkovResult result;
  std::vector<double> bits(counts.size());  // the sum over all bases, by order
  Word history = 0;
  for_each_base(genome, test, [&](uint8_t base, uint64_t known) {
    if (known == 0) {
      return;
    }
    const size_t context_bases = std::min(known - 1, counts.size() - 1);
    double p = 0.25;
    for (size_t order = 0; order < counts.size(); ++order) {
      if (order <= context_bases) {
        const Word context = history & static_cast<Word>((uint64_t{1} << 2 * order) - 1);
        p = smoothed(counts[order].after(context), base, p, options.shrinkage);
      }
      bits[order] -= std::log2(p);
    }
    history = history << 2 | base;
    ++result.num_scored;
  });
  MANTISSA_CHECK(result.num_scored > 0, InvalidArgument,
                 "markov: no base A, C, G or T to score; give intervals that hold some");
  for (const double total : bits) {
    result.bits_per_base.push_back(total / static_cast<double>(result.num_scored));
  }
  return result;
}

}  // namespace mantissa::genome
