#pragma once

#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"
#include "mantissa/data/genome_dataset.h"
#include "mantissa/genome/allele_windows.h"
#include "mantissa/train/run_model.h"

namespace mantissa::train {

/// Log-likelihood ratios in nats: below 0 the network finds the change less likely than the
/// reference.
struct AlleleScore {
  double forward = 0;
  double reverse = 0;

  double mean() const { return (forward + reverse) / 2; }
  bool operator==(const AlleleScore&) const = default;
};

/// Scores changes of a genome with a language model.
///
/// causal: the sum over the window of log p of each base of the alternative given those before it,
/// minus that of the reference (genome::log_ratio). The first base of a window has no context and
/// counts for neither.
///
/// masked, a change of as many bases: the bases that differ are hidden, all at once, and the sum is
/// over them (for a single base: Benegas et al., GPN, 2023). A change of the number of bases: the
/// difference of the pseudo-log-likelihoods (Salazar et al., 2020) of the bases that the change may
/// touch and kFlank on either side, as many of both windows, each hidden by itself. The two are
/// different quantities: do not rank insertions and deletions among substitutions.
///
/// The score of a change depends on nothing but its windows: each forward pass holds windows of one
/// change alone, in a shape that these decide, so no neighbour and no order of a file can alter a
/// bit of it. It may differ in its last bits for another number of threads, and on another
/// processor.
class MANTISSA_API AlleleScorer {
 public:
  /// Bases on either side of an insertion or deletion that a masked model is asked for.
  static constexpr uint64_t kFlank = 8;

  /// `model` must outlive it. Throws InvalidArgument for a `context` below 2.
  AlleleScorer(const RunModel& model, data::Objective objective, int64_t context);

  /// Bases of a window: for a causal network one more than its context, which has a target each.
  uint64_t window_bases() const;

  /// Of windows that are there. Not finite when a probability that it asks for is not.
  AlleleScore score(const genome::AlleleWindows& windows) const;

 private:
  AlleleScore causal(const genome::AlleleWindows& windows) const;
  AlleleScore masked_substitution(const genome::AlleleWindows& windows) const;
  AlleleScore masked_indel(const genome::AlleleWindows& windows) const;

  const RunModel& model_;
  data::Objective objective_;
  int64_t context_;
};

}  // namespace mantissa::train
