#pragma once

#include <string>
#include <string_view>

#include "mantissa/base/api.h"

namespace mantissa::genome {

/// Which amino acid a codon stands for: one of NCBI's translation tables
/// (www.ncbi.nlm.nih.gov/Taxonomy/Utils/wprintgc.cgi).
class MANTISSA_API GeneticCode {
 public:
  /// 1 standard, 2 vertebrate mitochondria, 3 yeast mitochondria, 4 mould and protozoan
  /// mitochondria and Mycoplasma, 5 invertebrate mitochondria, 11 bacteria and plastids (the amino
  /// acids of 1). Throws InvalidArgument for another.
  explicit GeneticCode(int table = 1);

  /// The one-letter code of a codon of three letters A, C, G, T, '*' for a stop; 'X' when one of
  /// them is another letter.
  char amino_acid(std::string_view codon) const;

  /// Of each whole codon.
  std::string translate(std::string_view coding) const;

 private:
  std::string_view amino_acids_;  // 64, the first base slowest, in the order T C A G
};

}  // namespace mantissa::genome
