#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/genome/fasta_index.h"
#include "mantissa/genome/interval.h"

namespace mantissa::genome {

/// The sequences of a FASTA file in memory, two bits a base: 0.78 GB for the human genome. Letters
/// other than A, C, G, T and soft-masked stretches (lower case) are kept as lists of runs.
///
///     const Genome genome = Genome::open("data/lambda.fa");
///     std::vector<uint8_t> letters(100);
///     genome.fetch({genome.index_of("NC_001416.1"), 500, 600}, letters);
///
/// Const member functions may be called by many threads at once.
class MANTISSA_API Genome {
 public:
  /// A stretch with one property: the letter that stands there, or soft masking.
  struct Run {
    uint64_t begin;
    uint64_t end;
    uint8_t letter;
  };

  /// Reads a file by read_fasta(), in one pass, so that a gzip file serves as well as any.
  /// Writes a `.fai` beside it when that is missing and possible. One that is there must agree
  /// (Corruption): a cut off plain file is known by nothing else.
  static Genome open(const std::filesystem::path& fasta);

  /// Reads FASTA text.
  static Genome parse(std::string_view fasta);

  const std::vector<Contig>& contigs() const { return contigs_; }

  /// Throws InvalidArgument with the nearest name when there is no such contig.
  uint32_t index_of(std::string_view name) const;
  std::optional<uint32_t> find(std::string_view name) const;

  /// The upper-case IUPAC letters of `interval` into `letters`, which has its size.
  void fetch(const Interval& interval, std::span<uint8_t> letters) const;

  /// The runs of one letter other than A, C, G, T in a contig, in order.
  const std::vector<Run>& unknown_runs(uint32_t contig) const;

  /// The runs of lower case in a contig, in order; `letter` is 0.
  const std::vector<Run>& soft_masked_runs(uint32_t contig) const;

  /// Bases of `interval` that were lower case.
  uint64_t count_soft_masked(const Interval& interval) const;
  /// Letters of `interval` other than A, C, G, T.
  uint64_t count_unknown(const Interval& interval) const;

  uint64_t num_bases() const;
  uint64_t memory_bytes() const;  // of bases and runs

 private:
  class Builder;

  struct Sequence {
    std::vector<uint8_t> packed;  // four bases a byte, the first in the lowest bits
    std::vector<Run> unknown;
    std::vector<Run> soft_masked;
  };

  Genome() = default;
  void require_within(const Interval& interval) const;

  std::vector<Contig> contigs_;
  std::vector<Sequence> sequences_;
  std::map<std::string, uint32_t, std::less<>> by_name_;
};

}  // namespace mantissa::genome
