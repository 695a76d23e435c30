#include "mantissa/data/tokenizer.h"

#include <array>
#include <numeric>
#include <string_view>
#include <utility>

#include "mantissa/base/error.h"
#include "mantissa/genome/alphabet.h"

namespace mantissa::data {
namespace {

constexpr std::array<std::string_view, kVocabulary> kTexts = {
    "[CLS]", "[SEP]", "[BOS]", "[MASK]", "[PAD]", "[RESERVED]", "[UNK]", "A", "C", "G", "T", "N"};

constexpr std::array<int64_t, 256> make_tokens() {
  std::array<int64_t, 256> table{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    const auto letter = static_cast<uint8_t>(byte);
    const uint8_t base = genome::base_number(letter);
    table.at(byte) = base != genome::kNoBase         ? kA + base
                     : genome::base_set(letter) != 0 ? int64_t{kN}
                                                     : int64_t{kUnk};
  }
  return table;
}

constexpr std::array<int64_t, 256> kTokens = make_tokens();

}  // namespace

int64_t token_of(uint8_t letter) { return kTokens[letter]; }

void encode(std::span<const uint8_t> letters, std::span<int64_t> tokens) {
  MANTISSA_CHECK(letters.size() == tokens.size(), InvalidArgument, "encode: ", letters.size(),
                 " letters, room for ", tokens.size(),
                 " tokens; give as much as there are letters");
  for (size_t i = 0; i < letters.size(); ++i) {
    tokens[i] = kTokens[letters[i]];
  }
}

std::vector<int64_t> complements() {
  std::vector<int64_t> result(static_cast<size_t>(kPaddedVocabulary));
  std::iota(result.begin(), result.end(), int64_t{0});
  std::swap(result[kA], result[kT]);
  std::swap(result[kC], result[kG]);
  return result;
}

std::string token_text(int64_t token) {
  MANTISSA_CHECK(0 <= token && token < kVocabulary, InvalidArgument, "tokenizer: token ", token,
                 "; valid: 0 to ", kVocabulary - 1);
  return std::string(kTexts.at(static_cast<size_t>(token)));
}

std::string vocabulary_id() {
  // FNV-1a, 64 bits, over the texts in the order of their ids.
  uint64_t hash = 0xcbf29ce484222325;
  for (const std::string_view text : kTexts) {
    for (const char c : concat(text, '\n')) {
      hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    }
  }
  return concat("dna-characters-", kVocabulary, "-", std::hex, hash);
}

}  // namespace mantissa::data
