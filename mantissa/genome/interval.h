#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/base/api.h"

namespace mantissa::genome {

class Genome;

/// A stretch of a contig, 0-based and half-open, as in BED. `contig` is an index into
/// Genome::contigs().
struct Interval {
  uint32_t contig = 0;
  uint64_t begin = 0;
  uint64_t end = 0;

  uint64_t size() const { return end - begin; }
  bool operator==(const Interval&) const = default;
};

/// Reads a region as samtools writes it, 1-based with both ends included: `chrI` (all of it),
/// `chrI:1-5000`, `chrI:1,000-2,000`, `chrI:5000` or `chrI:5000-` (to the end), `chrI:-5000`.
/// A text that is the name of a contig as a whole is that contig, whatever colons are in it.
/// Throws InvalidArgument for an unknown contig (with the nearest name) and for a region that is
/// empty or reaches out of its contig: nothing is cut silently.
MANTISSA_API Interval parse_region(const Genome& genome, std::string_view text);

/// The same form: `chrI:1-5000`.
MANTISSA_API std::string to_string(const Genome& genome, const Interval& interval);

/// Sorted, without empty ones, those which overlap or touch made one.
MANTISSA_API std::vector<Interval> merge(std::vector<Interval> intervals);

}  // namespace mantissa::genome
