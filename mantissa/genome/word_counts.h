#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "mantissa/genome/alphabet.h"
#include "mantissa/genome/genome.h"
#include "mantissa/genome/interval.h"

namespace mantissa::genome {

inline constexpr int kMaxMarkovOrder = 12;

// A word of n bases is a number of 2n bits, the last base lowest: a context followed by a base is
// word = context * 4 + base, and a context cut at its front is a remainder.
using Word = uint32_t;
static_assert(2 * (kMaxMarkovOrder + 1) <= std::numeric_limits<Word>::digits);

// Calls visit(base number, length of the run of known bases that ends there) for each letter.
template <typename Visit>
void for_each_base(const Genome& genome, const std::vector<Interval>& intervals, Visit visit) {
  constexpr uint64_t kChunkBases = 1 << 16;
  std::vector<uint8_t> letters(kChunkBases);
  for (const Interval& interval : intervals) {
    uint64_t known = 0;
    for (uint64_t begin = interval.begin; begin < interval.end; begin += kChunkBases) {
      const Interval chunk{interval.contig, begin, std::min(begin + kChunkBases, interval.end)};
      const std::span<uint8_t> part(letters.data(), chunk.size());
      genome.fetch(chunk, part);
      for (const uint8_t letter : part) {
        const uint8_t base = base_number(letter);
        known = base == kNoBase ? 0 : known + 1;
        visit(base, known);
      }
    }
  }
}

// Calls visit(word) for each word of `length` known bases, on both strands.
template <typename Visit>
void for_each_word(const Genome& genome, const std::vector<Interval>& intervals, int length,
                   Visit visit) {
  const Word mask = static_cast<Word>((uint64_t{1} << 2 * length) - 1);
  const int top = 2 * (length - 1);
  Word forward = 0;
  Word reverse = 0;
  for_each_base(genome, intervals, [&](uint8_t base, uint64_t known) {
    if (known == 0) {
      return;
    }
    forward = (forward << 2 | base) & mask;
    reverse = reverse >> 2 | static_cast<Word>(3 - base) << top;
    if (known >= static_cast<uint64_t>(length)) {
      visit(forward);
      visit(reverse);
    }
  });
}

// How often each word of one length was seen.
class WordCounts {
 public:
  WordCounts(const Genome& genome, const std::vector<Interval>& intervals, int length,
             uint64_t num_bases) {
    const uint64_t num_words = uint64_t{1} << 2 * length;
    // Where most cells of a table would stay empty, the sorted list of words seen is smaller.
    if (num_words <= 8 * num_bases) {
      dense_.resize(num_words);
      count_dense(genome, intervals, length);
      return;
    }
    seen_.reserve(2 * num_bases);
    for_each_word(genome, intervals, length, [&](Word word) { seen_.push_back(word); });
    std::sort(seen_.begin(), seen_.end());
  }

  // Of the four words that continue `context`.
  std::array<uint32_t, 4> after(Word context) const {
    std::array<uint32_t, 4> counts{};
    if (!dense_.empty()) {
      std::copy_n(dense_.begin() + static_cast<int64_t>(4 * uint64_t{context}), 4, counts.begin());
      return counts;
    }
    const uint64_t first = 4 * uint64_t{context};
    auto word = std::lower_bound(seen_.begin(), seen_.end(), first);
    for (; word != seen_.end() && *word < first + 4; ++word) {
      ++counts.at(*word - first);
    }
    return counts;
  }

 private:
  // A table of a long word is larger than any cache: a cell is asked for some words ahead of use.
  void count_dense(const Genome& genome, const std::vector<Interval>& intervals, int length) {
    constexpr size_t kAhead = 32;
    std::array<Word, kAhead> waiting{};
    size_t seen = 0;
    for_each_word(genome, intervals, length, [&](Word word) {
      __builtin_prefetch(&dense_[word], 1);
      const Word due = std::exchange(waiting[seen % kAhead], word);
      dense_[due] += seen >= kAhead ? 1 : 0;
      ++seen;
    });
    for (size_t i = 0; i < std::min(seen, kAhead); ++i) {
      ++dense_[waiting.at(i)];
    }
  }

  std::vector<uint32_t> dense_;
  std::vector<Word> seen_;
};

// p_k(base | context) of markov.h, from the counts after the context and p_{k-1}.
inline double smoothed(const std::array<uint32_t, 4>& after, uint8_t base, double lower,
                       double shrinkage) {
  const double total = static_cast<double>(after[0]) + after[1] + after[2] + after[3];
  return (after.at(base) + shrinkage * lower) / (total + shrinkage);
}

}  // namespace mantissa::genome
