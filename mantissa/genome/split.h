#pragma once

#include <string>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/genome/genome.h"
#include "mantissa/genome/interval.h"

namespace mantissa::genome {

/// What is held out. Each entry is the name of a contig, a pattern over names (`chr1?`, `*_random`;
/// see glob_match) or a region (see parse_region), in that order of preference.
struct SplitSpec {
  std::vector<std::string> validation;
  std::vector<std::string> test;
};

/// Intervals in the order of the genome, none empty, none touching another of its list.
struct Split {
  std::vector<Interval> train;
  std::vector<Interval> validation;
  std::vector<Interval> test;
};

/// Validation and test as in `spec`, all else is train. Throws InvalidArgument for an entry that
/// names nothing, a region out of bounds, an overlap of validation and test, and when nothing is
/// left to train on. Entries of one list may overlap.
///
///     split(genome, {.validation = {"chr15"}, .test = {"chr16:1-400000"}})
MANTISSA_API Split split(const Genome& genome, const SplitSpec& spec);

}  // namespace mantissa::genome
