#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "mantissa/base/api.h"

namespace mantissa::genome {

enum class Strand : uint8_t { forward, reverse };

/// The IUPAC nucleotide codes (Cornish-Bowden, Nucleic Acids Res. 13, 1985) at the index that is
/// the set of bases they stand for: A = 1, C = 2, G = 4, T = 8, as in BAM's four-bit encoding.
inline constexpr std::string_view kIupac = "=ACMGRSVTWYHKDBN";

/// The number of A, C, G, T is 0, 1, 2, 3; that of all else is kNoBase.
inline constexpr uint8_t kNoBase = 4;

namespace detail {

struct LetterTables {
  std::array<uint8_t, 256> set{};
  std::array<uint8_t, 256> base{};
  std::array<uint8_t, 256> complement{};
};

constexpr uint8_t complement_set(unsigned set) {
  return static_cast<uint8_t>((set & 1) << 3 | (set & 2) << 1 | (set & 4) >> 1 | (set & 8) >> 3);
}

constexpr LetterTables make_letter_tables() {
  constexpr unsigned kLowerCase = 'a' - 'A';
  LetterTables tables;
  tables.base.fill(kNoBase);
  const auto add = [&](unsigned letter, unsigned set) {
    const auto other = static_cast<uint8_t>(kIupac[complement_set(set)]);
    for (const unsigned shift : {0U, kLowerCase}) {
      tables.set.at(letter + shift) = static_cast<uint8_t>(set);
      tables.complement.at(letter + shift) = static_cast<uint8_t>(other + shift);
      for (unsigned base = 0; base < 4; ++base) {
        if (set == 1U << base) {
          tables.base.at(letter + shift) = static_cast<uint8_t>(base);
        }
      }
    }
  };
  for (unsigned set = 1; set < kIupac.size(); ++set) {
    add(static_cast<unsigned char>(kIupac[set]), set);
  }
  add('U', 8);
  return tables;
}

inline constexpr LetterTables kLetters = make_letter_tables();

}  // namespace detail

/// The set of bases that a letter of either case stands for; 0 when it is no IUPAC code. U is T.
constexpr uint8_t base_set(uint8_t letter) { return detail::kLetters.set[letter]; }

/// 0 to 3 for A, C, G, T (or U) of either case, else kNoBase.
constexpr uint8_t base_number(uint8_t letter) { return detail::kLetters.base[letter]; }

/// The IUPAC code for the complements of the bases that `letter` stands for, in the same case
/// (R and Y, K and M, B and V, D and H; S, W and N are their own); 0 for any other byte.
constexpr uint8_t complement(uint8_t letter) { return detail::kLetters.complement[letter]; }

/// Turns a sequence of IUPAC codes into the other strand's, in place.
MANTISSA_API void reverse_complement_(std::span<uint8_t> letters);

}  // namespace mantissa::genome
