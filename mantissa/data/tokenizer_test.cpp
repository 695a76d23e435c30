#include "mantissa/data/tokenizer.h"

#include <array>
#include <string_view>

#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/genome/alphabet.h"

namespace mantissa::data {
namespace {

TEST(Tokenizer, HasTheIdsOfHyenaDna) {
  EXPECT_EQ(token_of('A'), 7);
  EXPECT_EQ(token_of('C'), 8);
  EXPECT_EQ(token_of('G'), 9);
  EXPECT_EQ(token_of('T'), 10);
  EXPECT_EQ(token_of('N'), 11);
}

TEST(Tokenizer, GivesLowerCaseTheIdOfUpperCase) {
  for (const char letter : std::string_view("ACGTNRYSWKMBDHVU")) {
    EXPECT_EQ(token_of(static_cast<uint8_t>(letter)),
              token_of(static_cast<uint8_t>(letter - 'A' + 'a')))
        << letter;
  }
}

TEST(Tokenizer, MapsIupacCodesToNAndOtherBytesToUnknown) {
  for (const char letter : std::string_view("RYSWKMBDHV")) {
    EXPECT_EQ(token_of(static_cast<uint8_t>(letter)), kN) << letter;
  }
  EXPECT_EQ(token_of('U'), kT);
  EXPECT_EQ(token_of('-'), kUnk);
  EXPECT_EQ(token_of('E'), kUnk);
  EXPECT_EQ(token_of(0), kUnk);
}

TEST(Tokenizer, EncodesAndRefusesTheWrongRoom) {
  constexpr std::array<uint8_t, 5> kLetters = {'G', 'a', 'T', 'n', 'R'};
  std::array<int64_t, 5> tokens{};
  encode(kLetters, tokens);
  EXPECT_EQ(tokens, (std::array<int64_t, 5>{kG, kA, kT, kN, kN}));
  try {
    encode(kLetters, std::span(tokens).first(4));
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "encode: 5 letters, room for 4 tokens; give as much as there are letters");
  }
}

TEST(Tokenizer, ComplementsAreThoseOfTheLetters) {
  const std::vector<int64_t> complement = complements();
  ASSERT_EQ(complement.size(), kPaddedVocabulary);
  for (const char letter : std::string_view("ACGTN")) {
    const auto byte = static_cast<uint8_t>(letter);
    EXPECT_EQ(complement[static_cast<size_t>(token_of(byte))], token_of(genome::complement(byte)))
        << letter;
  }
  for (const int64_t token : {kCls, kMask, kPad, kUnk, kN}) {
    EXPECT_EQ(complement[static_cast<size_t>(token)], token);
  }
}

TEST(Tokenizer, NamesEachToken) {
  EXPECT_EQ(token_text(kMask), "[MASK]");
  EXPECT_EQ(token_text(kA), "A");
  EXPECT_EQ(token_text(kN), "N");
  try {
    (void)token_text(12);
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "tokenizer: token 12; valid: 0 to 11");
  }
  EXPECT_THROW((void)token_text(-1), InvalidArgument);
}

TEST(Tokenizer, OnlyTheFourBasesAreBases) {
  for (int64_t token = 0; token < kPaddedVocabulary; ++token) {
    EXPECT_EQ(is_base(token), token == kA || token == kC || token == kG || token == kT) << token;
  }
}

// Stored in checkpoints: a change of it makes every checkpoint unreadable. The hash was computed
// by another implementation of FNV-1a over the twelve texts, each followed by a newline.
TEST(Tokenizer, ItsIdStaysWhatItIs) {
  EXPECT_EQ(vocabulary_id(), "dna-characters-12-c80e68ccc10cccab");
}

}  // namespace
}  // namespace mantissa::data
