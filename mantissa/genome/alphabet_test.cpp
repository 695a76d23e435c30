#include "mantissa/genome/alphabet.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace mantissa::genome {
namespace {

std::string reversed(std::string text) {
  std::vector<uint8_t> letters(text.begin(), text.end());
  reverse_complement_(letters);
  return {letters.begin(), letters.end()};
}

TEST(Alphabet, ComplementsEveryIupacCode) {
  constexpr std::string_view kCodes = "ACGTRYSWKMBDHVNU";
  constexpr std::string_view kComplements = "TGCAYRSWMKVHDBNA";
  for (size_t i = 0; i < kCodes.size(); ++i) {
    EXPECT_EQ(complement(static_cast<uint8_t>(kCodes[i])), kComplements[i]) << kCodes[i];
  }
}

// A complement stands for the complements of the bases: the definition, for all codes.
TEST(Alphabet, ComplementIsTheSetOfComplementaryBases) {
  constexpr std::string_view kBases = "ACGT";
  for (unsigned letter = 0; letter < 256; ++letter) {
    const auto code = static_cast<uint8_t>(letter);
    uint8_t expected = 0;
    for (unsigned base = 0; base < 4; ++base) {
      if ((base_set(code) >> base & 1) != 0) {
        expected |= base_set(static_cast<uint8_t>(kBases[3 - base]));
      }
    }
    EXPECT_EQ(base_set(complement(code)), expected) << letter;
  }
}

TEST(Alphabet, ComplementKeepsTheCase) {
  EXPECT_EQ(complement('a'), 't');
  EXPECT_EQ(complement('r'), 'y');
  EXPECT_EQ(complement('n'), 'n');
}

TEST(Alphabet, OtherBytesHaveNoMeaning) {
  for (const uint8_t byte : {'\0', '=', 'E', 'X', '-', '*', '>', '\xff'}) {
    EXPECT_EQ(complement(byte), 0) << byte;
    EXPECT_EQ(base_set(byte), 0) << byte;
    EXPECT_EQ(base_number(byte), kNoBase) << byte;
  }
}

TEST(Alphabet, NumbersTheFourBasesInEitherCase) {
  EXPECT_EQ(base_number('A'), 0);
  EXPECT_EQ(base_number('c'), 1);
  EXPECT_EQ(base_number('G'), 2);
  EXPECT_EQ(base_number('t'), 3);
  EXPECT_EQ(base_number('U'), 3);
  EXPECT_EQ(base_number('N'), kNoBase);
  EXPECT_EQ(base_number('R'), kNoBase);
}

TEST(Alphabet, ReverseComplementsOddEvenAndEmpty) {
  EXPECT_EQ(reversed("GATTACA"), "TGTAATC");
  EXPECT_EQ(reversed("acRN"), "NYgt");
  EXPECT_EQ(reversed(""), "");
}

}  // namespace
}  // namespace mantissa::genome
