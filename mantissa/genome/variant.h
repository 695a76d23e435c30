#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/genome/genome.h"

namespace mantissa::genome {

/// What an alternative of a VCF record is, after bases that it shares with REF are taken off.
enum class AlleleKind : uint8_t {
  snv,                   // one base for another
  mnv,                   // several bases for as many
  insertion,             // bases between two others
  deletion,              // bases less
  complex,               // bases for another number of bases
  reference,             // none: ALT is "." or REF again
  missing,               // "." beside other alternatives
  symbolic,              // a name in angle brackets, as DEL, DUP, NON_REF
  overlapping_deletion,  // "*": the base is gone by a deletion of another record
  breakend,              // "G]17:198982]", "G.", ".G"
  unreadable,            // none of these
};

MANTISSA_API std::string_view to_string(AlleleKind kind);

/// Why an alternative has no score.
enum class Unscored : uint8_t {
  no_alternative,
  same_as_reference,
  missing_alternative,
  symbolic,
  overlapping_deletion,
  breakend,
  unreadable_allele,      // REF or ALT holds what is no nucleotide
  contig_missing,         // the FASTA has no such contig, with or without "chr"
  out_of_contig,          // POS 0, or REF reaches beyond its end
  reference_mismatch,     // REF is not what the FASTA has
  ambiguous_reference,    // the FASTA or REF has an IUPAC code for several bases there
  ambiguous_alternative,  // ALT has one
  too_long,               // does not fit into half a window
  contig_end,             // no window at the end of the contig shows a difference
  not_finite,             // the model's result is NaN or infinite
};

MANTISSA_API std::string_view to_string(Unscored reason);
/// A sentence for people.
MANTISSA_API std::string_view explain(Unscored reason);

/// A change of the reference in its normal form: bases that REF and ALT share at their ends are
/// taken off and, for an insertion or deletion, it stands as far left as the sequence allows (Tan,
/// Abecasis and Kang, "Unified representation of genetic variants", Bioinformatics 31, 2015). So
/// all ways to write the same change are the same Allele.
struct Allele {
  uint32_t contig = 0;
  uint64_t begin = 0;       // 0-based; of an insertion, the base that comes after it
  std::string reference;    // upper-case A, C, G, T; one of the two may be empty
  std::string alternative;  // the same
  uint64_t slide = 0;       // bases by which it could stand further right: the same sequence

  bool operator==(const Allele&) const = default;
};

/// One line of a VCF file, as it is. The views are into the line.
struct VariantLine {
  std::string_view chrom;
  uint64_t position = 0;  // POS, from 1; 0 is a telomere
  std::string_view reference;
  std::vector<std::string_view> alternatives;  // empty when ALT is "."
  std::string_view info;                       // "." when there is none
};

/// Reads the first eight columns. Throws Corruption that begins with `where` when there are fewer,
/// and for a POS that is no number, an empty column and an empty alternative.
MANTISSA_API VariantLine parse_variant(std::string_view line, std::string_view where);

/// The line with `fields` (`A=1;B=2`) behind what INFO has, every other byte as it was.
MANTISSA_API std::string with_info(std::string_view line, const VariantLine& variant,
                                   std::string_view fields);

struct CheckedAllele {
  AlleleKind kind = AlleleKind::unreadable;
  std::optional<Unscored> unscored;
  Allele allele;  // when there is no reason against it
};

struct CheckedVariant {
  /// One for each alternative; one when there is none.
  std::vector<CheckedAllele> alleles;
  bool renamed_contig = false;  // found with "chr" put before, or taken off
};

/// Classifies the alternatives of a record and compares REF with the genome. Letters may be of
/// either case. A REF that names one base where the FASTA has a code for several of which it is
/// one agrees (the VCF specification has such codes reduced to a base), but is not scored: the
/// reference has no base there.
MANTISSA_API CheckedVariant check_variant(const Genome& genome, const VariantLine& variant);

}  // namespace mantissa::genome
