#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/genome/alphabet.h"
#include "mantissa/genome/genome.h"
#include "mantissa/genome/interval.h"

namespace mantissa::genome {

/// A coding sequence: intervals of one contig in the order in which they are read.
struct CodingSequence {
  std::string id;
  uint32_t contig = 0;
  Strand strand = Strand::forward;
  std::vector<Interval> parts;  // on the reverse strand the last of the contig first
  uint64_t phase = 0;           // bases before the first whole codon: 0, 1 or 2

  /// Upper-case letters, as read, from the first whole codon on.
  MANTISSA_API std::string letters(const Genome& genome) const;
};

struct Annotation {
  std::vector<CodingSequence> coding;  // in the order of the file
  uint64_t unknown_contig = 0;         // coding sequences on contigs that the genome lacks
};

/// Reads the CDS features of a GFF3 file (github.com/The-Sequence-Ontology/Specifications), plain,
/// gzip or bgzip, up to "##FASTA". Lines with the same ID attribute, or without one the same
/// Parent, are one coding sequence; a line without either is one by itself. A contig is found also
/// with "chr" put before or taken off. Features of other types are passed over.
///
/// Corruption, with file and line: a file that does not begin with "##gff-version 3"; not nine
/// columns; positions that are no numbers, out of order or beyond the contig; a CDS without strand
/// or phase; parts of one coding sequence on two contigs or strands, or that overlap; no CDS at
/// all.
MANTISSA_API Annotation read_gff3(const std::filesystem::path& path, const Genome& genome);

}  // namespace mantissa::genome
