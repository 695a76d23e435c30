#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mantissa/base/api.h"

namespace mantissa::data {

/// One token a letter, with the ids of HyenaDNA's character tokenizer (Nguyen et al., 2023).
/// Lower case has the id of upper case, unlike there, where soft-masked sequence became [UNK];
/// the IUPAC codes for several bases become N.
enum Token : int64_t {
  kCls = 0,
  kSep = 1,
  kBos = 2,
  kMask = 3,
  kPad = 4,
  kReserved = 5,
  kUnk = 6,
  kA = 7,
  kC = 8,
  kG = 9,
  kT = 10,
  kN = 11,
};

inline constexpr int64_t kVocabulary = 12;
/// Rows of an embedding: the last four belong to no token and make products of a handy size.
inline constexpr int64_t kPaddedVocabulary = 16;

/// In the place of a target: nothing is scored there. cross_entropy's default `ignore_index`.
inline constexpr int64_t kIgnore = -100;

/// Whether a token is one of the four bases, the only ones whose prediction is scored.
constexpr bool is_base(int64_t token) { return kA <= token && token <= kT; }

/// The token of a letter; kUnk for what is no IUPAC code.
MANTISSA_API int64_t token_of(uint8_t letter);

/// Writes the tokens of `letters` to `tokens`, of the same size.
MANTISSA_API void encode(std::span<const uint8_t> letters, std::span<int64_t> tokens);

/// Of each of the kPaddedVocabulary tokens the one of the complementary base; of what is no base
/// itself.
MANTISSA_API std::vector<int64_t> complements();

/// The text of a token: a letter, or a name such as `[MASK]`. Throws InvalidArgument when it is
/// not below kVocabulary.
MANTISSA_API std::string token_text(int64_t token);

/// Names the tokenizer and a hash of its tokens: `dna-characters-12-<hex>`. A checkpoint stores it:
/// a model of another id must not be loaded.
MANTISSA_API std::string vocabulary_id();

}  // namespace mantissa::data
