#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/genome/genome.h"
#include "mantissa/genome/interval.h"

namespace mantissa::genome {

/// The Markov chain of one order that markov() scores with (markov.h), kept to ask for
/// probabilities.
class MANTISSA_API MarkovChain {
 public:
  /// Counted on both strands of `train`. Throws what markov() does of its options.
  MarkovChain(const Genome& genome, const std::vector<Interval>& train, int order,
              double shrinkage = 16);
  ~MarkovChain();
  MarkovChain(MarkovChain&&) noexcept;
  MarkovChain& operator=(MarkovChain&&) noexcept;

  int order() const { return order_; }

  /// log p (nats) of each letter given those before it, at most order() of them and none from
  /// before a letter other than A, C, G, T, which itself has NaN.
  std::vector<double> log_probabilities(std::string_view letters) const;

 private:
  class Counts;

  int order_;
  double shrinkage_;
  std::unique_ptr<const Counts> counts_;
};

}  // namespace mantissa::genome
