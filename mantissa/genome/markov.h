#pragma once

#include <cstdint>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/genome/genome.h"
#include "mantissa/genome/interval.h"

namespace mantissa::genome {

struct MarkovOptions {
  int max_order = 12;     // bases of context, 0 to 12
  double shrinkage = 16;  // weight of the next lower order, in observations
};

struct MANTISSA_API MarkovResult {
  std::vector<double> bits_per_base;  // at index k: of order k
  uint64_t num_scored = 0;            // bases, the same ones for every order

  int best_order() const;
  double best() const { return bits_per_base[static_cast<size_t>(best_order())]; }
};

/// The bar for any language model of DNA: the cross entropy, in bits, of the bases of `test` under
/// Markov chains counted on both strands of `train`.
///
///     p_k(b | c) = (n(c b) + shrinkage * p_{k-1}(b | c without its first)) / (n(c) + shrinkage),
///     p_{-1} = 1/4.
///
/// Letters other than A, C, G, T are neither counted nor scored, and contexts do not reach across
/// them or beyond an interval; there order k scores with as much context as there is. Memory is at
/// most 16 bytes per context, 0.36 GB for orders to 12, and less for small genomes.
///
/// Throws InvalidArgument for an order or shrinkage out of range and when nothing can be scored,
/// Unsupported when `train` has 2^32 bases or more.
MANTISSA_API MarkovResult markov(const Genome& genome, const std::vector<Interval>& train,
                                 const std::vector<Interval>& test,
                                 const MarkovOptions& options = {});

}  // namespace mantissa::genome
