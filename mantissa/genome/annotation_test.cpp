#include "mantissa/genome/annotation.h"

#include <filesystem>

#include <gmock/gmock.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/base/scratch_folder.h"
#include "mantissa/genome/genetic_code.h"

namespace mantissa::genome {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class AnnotationTest : public ::testing::Test {
 protected:
  Annotation read(std::string_view lines) const {
    return read_gff3(folder_.write("x.gff3", concat("##gff-version 3\n", lines)), genome_);
  }
  std::string error(std::string_view lines) const {
    return message_of<Corruption>([&] { (void)read(lines); });
  }

  Genome genome_ = Genome::parse(">a\nACGTACGTACGTACGTACGT\n>chrb\nTTTGGG\n");
  ScratchFolder folder_;
};

TEST_F(AnnotationTest, JoinsTheLinesOfACodingSequenceInTheOrderOfReading) {
  const Annotation annotation = read(
      "# a comment\n"
      "a\tx\tgene\t1\t20\t.\t+\t.\tID=g\n"
      "a\tx\tCDS\t9\t12\t.\t-\t1\tID=c1;Parent=t\r\n"
      "a\tx\tCDS\t3\t4\t.\t-\t0\tParent=t; ID=c1\n"
      "\n"
      "a\tx\tCDS\t2\t4\t.\t+\t2\tParent=t2\n"
      "b\tx\tCDS\t1\t6\t.\t+\t0\tNote=x\n"
      "none\tx\tCDS\t1\t600\t.\t+\t0\tID=c3\n"
      "none\tx\tCDS\t700\t800\t.\t+\t0\tID=c3\n"
      "##FASTA\n>a\nACGT\n");
  ASSERT_EQ(annotation.coding.size(), 3U);
  EXPECT_EQ(annotation.unknown_contig, 1U);
  const CodingSequence& first = annotation.coding[0];
  EXPECT_EQ(first.id, "c1");
  EXPECT_EQ(first.strand, Strand::reverse);
  EXPECT_THAT(first.parts, ElementsAre(Interval{0, 8, 12}, Interval{0, 2, 4}));
  EXPECT_EQ(first.phase, 1U);  // of the part that is read first
  // ACGT and GT, each as the other strand has it, without the first base.
  EXPECT_EQ(first.letters(genome_), "CGTAC");
  EXPECT_EQ(annotation.coding[1].letters(genome_), "T");
  EXPECT_EQ(annotation.coding[2].contig, 1U);
  EXPECT_EQ(annotation.coding[2].letters(genome_), "TTTGGG");
}

// What is listed is what reads as a gene: from a start codon to the only stop.
TEST_F(AnnotationTest, TheBundledGenesAreOpenReadingFrames) {
  const std::filesystem::path data = std::filesystem::path(MANTISSA_SOURCE_DIR) / "data";
  const Genome lambda = Genome::open(data / "lambda.fa");
  const Annotation annotation = read_gff3(data / "lambda.gff3", lambda);
  EXPECT_EQ(annotation.coding.size(), 42U);
  const GeneticCode code(11);
  for (const CodingSequence& coding : annotation.coding) {
    const std::string letters = coding.letters(lambda);
    EXPECT_EQ(letters.size() % 3, 0U) << coding.id;
    EXPECT_THAT(letters.substr(0, 3), ::testing::AnyOf("ATG", "GTG")) << coding.id;
    const std::string protein = code.translate(letters);
    EXPECT_EQ(protein.find('*'), protein.size() - 1) << coding.id;
  }
}

TEST_F(AnnotationTest, RefusesWhatItCannotTrust) {
  EXPECT_THAT(error("a\tx\tgene\t1\t20\t.\t+\t.\tID=g\n"), HasSubstr("has no CDS feature"));
  EXPECT_THAT(error("a\tx\tCDS\t1\t20\t.\t+\t0\n"), HasSubstr("x.gff3:2: 8 columns"));
  EXPECT_THAT(error("a\tx\tCDS\t1\t20\t.\t+\t0\tID=g\tmore\n"), HasSubstr("more than 9 columns"));
  EXPECT_THAT(error("a\tx\tCDS\tone\t20\t.\t+\t0\tID=g\n"),
              HasSubstr(":2: start \"one\" is no number"));
  EXPECT_THAT(error("a\tx\tCDS\t1\t21\t.\t+\t0\tID=g\n"),
              HasSubstr("1 to 21 is not within a, which has 20 bases"));
  EXPECT_THAT(error("a\tx\tCDS\t5\t4\t.\t+\t0\tID=g\n"), HasSubstr("5 to 4 is not within a"));
  EXPECT_THAT(error("a\tx\tCDS\t1\t20\t.\t.\t0\tID=g\n"), HasSubstr("strand \".\" of a CDS"));
  EXPECT_THAT(error("a\tx\tCDS\t1\t20\t.\t+\t.\tID=g\n"), HasSubstr("phase \".\" of a CDS"));
  EXPECT_THAT(error("a\tx\tCDS\t1\t2\t.\t+\t0\tID=g\na\tx\tCDS\t5\t6\t.\t-\t0\tID=g\n"),
              HasSubstr(":3: the coding sequence \"g\" has parts on two contigs or strands"));
  EXPECT_THAT(error("a\tx\tCDS\t1\t5\t.\t+\t0\tID=g\na\tx\tCDS\t5\t6\t.\t+\t0\tID=g\n"),
              HasSubstr("the parts of the coding sequence \"g\" overlap"));
  EXPECT_THAT(
      message_of<Corruption>([&] { (void)read_gff3(folder_.write("y", "a\tx\tCDS\n"), genome_); }),
      HasSubstr("y:1: does not begin with \"##gff-version 3\""));
}

}  // namespace
}  // namespace mantissa::genome
