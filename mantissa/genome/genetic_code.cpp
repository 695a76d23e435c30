#include "mantissa/genome/genetic_code.h"

#include <array>
#include <utility>

#include "mantissa/base/error.h"

namespace mantissa::genome {
namespace {

constexpr std::array<std::pair<int, std::string_view>, 6> kTables = {{
    {1, "FFLLSSSSYY**CC*WLLLLPPPPHHQQRRRRIIIMTTTTNNKKSSRRVVVVAAAADDEEGGGG"},
    {2, "FFLLSSSSYY**CCWWLLLLPPPPHHQQRRRRIIMMTTTTNNKKSS**VVVVAAAADDEEGGGG"},
    {3, "FFLLSSSSYY**CCWWTTTTPPPPHHQQRRRRIIMMTTTTNNKKSSRRVVVVAAAADDEEGGGG"},
    {4, "FFLLSSSSYY**CCWWLLLLPPPPHHQQRRRRIIIMTTTTNNKKSSRRVVVVAAAADDEEGGGG"},
    {5, "FFLLSSSSYY**CCWWLLLLPPPPHHQQRRRRIIMMTTTTNNKKSSSSVVVVAAAADDEEGGGG"},
    {11, "FFLLSSSSYY**CC*WLLLLPPPPHHQQRRRRIIIMTTTTNNKKSSRRVVVVAAAADDEEGGGG"},
}};

}  // namespace

GeneticCode::GeneticCode(int table) {
  for (const auto& [number, amino_acids] : kTables) {
    if (number == table) {
      amino_acids_ = amino_acids;
    }
  }
  MANTISSA_CHECK(!amino_acids_.empty(), InvalidArgument, "genetic code: table ", table,
                 "; valid: 1 2 3 4 5 11");
}

char GeneticCode::amino_acid(std::string_view codon) const {
  MANTISSA_CHECK(codon.size() == 3, InvalidArgument, "genetic code: \"", codon,
                 "\" is no codon; give three letters");
  constexpr std::string_view kOrder = "TCAG";
  size_t index = 0;
  for (const char letter : codon) {
    const size_t base = kOrder.find(letter);
    if (base == std::string_view::npos) {
      return 'X';
    }
    index = 4 * index + base;
  }
  return amino_acids_[index];
}

std::string GeneticCode::translate(std::string_view coding) const {
  std::string protein;
  for (size_t i = 0; i + 3 <= coding.size(); i += 3) {
    protein += amino_acid(coding.substr(i, 3));
  }
  return protein;
}

}  // namespace mantissa::genome
