#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/genome/annotation.h"
#include "mantissa/genome/genetic_code.h"
#include "mantissa/genome/genome.h"
#include "mantissa/genome/variant.h"

namespace mantissa::genome {

/// What a single base does to a protein, in the terms of the Sequence Ontology (..._variant), from
/// the least to the most severe.
enum class Consequence : uint8_t {
  synonymous,       // the same amino acid
  stop_retained,    // another stop codon
  missense,         // another amino acid
  initiator_codon,  // in the first codon, whatever it makes of it
  stop_lost,        // an amino acid in the place of the stop
  nonsense,         // a stop in the place of an amino acid
};

MANTISSA_API std::string_view to_string(Consequence consequence);
/// Throws InvalidArgument with the nearest name.
MANTISSA_API Consequence parse_consequence(std::string_view name);

/// Finds the coding sequences at a base and what a change does to them.
///
/// Left out, since their reading is in doubt: coding sequences with a stop before their last codon
/// (a pseudogene, or another genetic code). Codons with a letter other than A, C, G, T, and an
/// incomplete one at the end, have no consequence.
class MANTISSA_API Consequences {
 public:
  /// `genome` must outlive it.
  Consequences(const Genome& genome, Annotation annotation, const GeneticCode& code);

  /// Of a single base for another; the most severe where coding sequences overlap. Nothing for
  /// another kind of change, and outside of all of them.
  std::optional<Consequence> of(const Allele& allele) const;

  uint64_t num_coding() const { return annotation_.coding.size() - num_left_out_; }
  uint64_t num_left_out() const { return num_left_out_; }

 private:
  // A part of a coding sequence, and where it begins in that.
  struct Part {
    uint64_t begin;
    uint64_t end;
    uint64_t furthest;  // end of all parts so far
    size_t coding;
    uint64_t offset;  // of the base that is read first
  };

  std::optional<Consequence> of(const Part& part, const Allele& allele) const;

  const Genome& genome_;
  Annotation annotation_;
  GeneticCode code_;
  std::vector<std::vector<Part>> parts_;  // by contig, sorted by begin
  uint64_t num_left_out_ = 0;
};

}  // namespace mantissa::genome
