#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "mantissa/base/api.h"
#include "mantissa/genome/genome.h"
#include "mantissa/genome/variant.h"

namespace mantissa::genome {

/// The sequence around a change without and with it, as read along one strand. Both begin at the
/// same base of the contig and have the same number of letters, so that after an insertion the
/// alternative ends that many bases earlier in the contig, after a deletion later: a language model
/// gives less to a longer sequence, whatever is in it.
struct AlleleWindow {
  std::string reference;    // upper-case IUPAC letters
  std::string alternative;  // as many
  uint64_t begin = 0;       // index of the first base that the change may be said to touch, of both
  uint64_t reference_span = 0;    // bases from there on to the last that it may touch; an insertion
  uint64_t alternative_span = 0;  // or deletion in a repeat touches the whole repeat

  bool operator==(const AlleleWindow&) const = default;
};

struct AlleleWindows {
  std::optional<Unscored> unscored;       // too_long or contig_end; then the strands are empty
  std::array<AlleleWindow, 2> strands{};  // at the index that is the Strand
};

/// Windows of `length` bases with the middle of the change in their middle (index length / 2).
///
/// - Each strand follows the same rule, read along it: the reverse window is the one that the
///   reverse complement of genome and change has forward.
/// - At the ends of a contig the window moves inwards. A contig that is shorter, with the change or
///   without it, has windows of its length; they are no less than 2.
/// - too_long: the bases that the change may touch, with it or without it, exceed half a window.
///   contig_end: the windows are equal on one strand, since the change is at the end of the contig
///   where that strand stops, and is all that distinguishes them; or fewer than 2 bases are left.
///
/// `allele` is what check_variant() makes. Throws InvalidArgument when `length` is below 2.
MANTISSA_API AlleleWindows allele_windows(const Genome& genome, const Allele& allele,
                                          uint64_t length);

/// The sum of log p of the alternative's bases minus that of the reference's, over as many bases of
/// each: NaN stands for what is not scored (letters other than A, C, G, T, and a base without
/// context), and of the longer of the two only the first are taken. In order of the index.
MANTISSA_API double log_ratio(std::span<const double> reference,
                              std::span<const double> alternative);

}  // namespace mantissa::genome
