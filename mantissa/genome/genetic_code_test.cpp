#include "mantissa/genome/genetic_code.h"

#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"

namespace mantissa::genome {
namespace {

TEST(GeneticCode, TheStandardCode) {
  const GeneticCode code;
  EXPECT_EQ(code.amino_acid("ATG"), 'M');
  EXPECT_EQ(code.amino_acid("TGG"), 'W');
  EXPECT_EQ(code.amino_acid("GGG"), 'G');
  EXPECT_EQ(code.amino_acid("AAA"), 'K');
  EXPECT_EQ(code.amino_acid("CAT"), 'H');
  for (const char* stop : {"TAA", "TAG", "TGA"}) {
    EXPECT_EQ(code.amino_acid(stop), '*');
  }
  EXPECT_EQ(code.translate("ATGGCNTAAGC"), "MX*");
  EXPECT_EQ(GeneticCode(11).translate("ATGTGATAA"), code.translate("ATGTGATAA"));
}

// Where the other tables differ from the standard code, as NCBI lists it.
TEST(GeneticCode, TheOtherCodes) {
  EXPECT_EQ(GeneticCode(2).translate("AGAAGGATATGA"), "**MW");
  EXPECT_EQ(GeneticCode(3).translate("ATACTTCTCCTACTGTGA"), "MTTTTW");
  EXPECT_EQ(GeneticCode(4).translate("TGAATA"), "WI");
  EXPECT_EQ(GeneticCode(5).translate("AGAAGGATATGA"), "SSMW");
}

TEST(GeneticCode, RefusesAnotherTableAndWhatIsNoCodon) {
  EXPECT_EQ(message_of<InvalidArgument>([] { GeneticCode(7); }),
            "genetic code: table 7; valid: 1 2 3 4 5 11");
  EXPECT_EQ(message_of<InvalidArgument>([] { (void)GeneticCode().amino_acid("AT"); }),
            "genetic code: \"AT\" is no codon; give three letters");
}

}  // namespace
}  // namespace mantissa::genome
