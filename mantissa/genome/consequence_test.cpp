#include "mantissa/genome/consequence.h"

#include <algorithm>

#include <gmock/gmock.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"

namespace mantissa::genome {
namespace {

Annotation one(Strand strand, std::vector<Interval> parts, uint64_t phase = 0) {
  return {{{"c", 0, strand, std::move(parts), phase}}, 0};
}

std::string of(const Consequences& consequences, uint64_t position, char reference,
               char alternative) {
  const auto found =
      consequences.of({0, position, std::string(1, reference), std::string(1, alternative), 0});
  return found ? std::string(to_string(*found)) : "none";
}

TEST(Consequences, OfEveryKindOnTheForwardStrand) {
  // M W L stop, from index 2.
  const Genome genome = Genome::parse(">a\nCCATGTGGCTATAACC\n");
  const Consequences consequences(genome, one(Strand::forward, {{0, 2, 14}}), GeneticCode());
  EXPECT_EQ(consequences.num_coding(), 1U);
  EXPECT_EQ(of(consequences, 1, 'C', 'A'), "none");
  EXPECT_EQ(of(consequences, 2, 'A', 'G'), "initiator_codon");
  EXPECT_EQ(of(consequences, 7, 'G', 'A'), "nonsense");        // TGG to TGA
  EXPECT_EQ(of(consequences, 7, 'G', 'C'), "missense");        // TGC
  EXPECT_EQ(of(consequences, 10, 'A', 'G'), "synonymous");     // CTA to CTG
  EXPECT_EQ(of(consequences, 8, 'C', 'T'), "synonymous");      // CTA to TTA
  EXPECT_EQ(of(consequences, 12, 'A', 'G'), "stop_retained");  // TAA to TGA
  EXPECT_EQ(of(consequences, 11, 'T', 'C'), "stop_lost");      // CAA
  EXPECT_EQ(of(consequences, 14, 'C', 'A'), "none");
  EXPECT_EQ(consequences.of({0, 7, "GC", "AA", 0}), std::nullopt);
  EXPECT_EQ(consequences.of({0, 7, "", "A", 0}), std::nullopt);
}

// The same gene on the other strand, in two parts that cut a codon, against the forward one.
TEST(Consequences, AreTheSameOnTheOtherStrandAndAcrossAnIntron) {
  const Genome whole = Genome::parse(">a\nATGTGGCTATAA\n");
  const Consequences expected(whole, one(Strand::forward, {{0, 0, 12}}), GeneticCode());
  // The reverse complement of ATGT GG CTATAA with an intron of TTTTT behind the fourth base.
  const Genome spliced = Genome::parse(">a\nTTATAGCCTTTTTACAT\n");
  const Consequences found(spliced, one(Strand::reverse, {{0, 13, 17}, {0, 0, 8}}), GeneticCode());
  const std::string gene = "ATGTGGCTATAA";
  constexpr std::string_view kBases = "ACGT";
  for (uint64_t i = 0; i < gene.size(); ++i) {
    const uint64_t position = i < 4 ? 16 - i : 11 - i;
    for (const char base : kBases) {
      const char other = kBases[3 - kBases.find(base)];
      EXPECT_EQ(of(found, position, kBases[3 - kBases.find(gene[i])], other),
                of(expected, i, gene[i], base))
          << i << base;
    }
  }
  for (uint64_t position = 8; position < 13; ++position) {
    EXPECT_EQ(of(found, position, 'T', 'A'), "none");
  }
}

TEST(Consequences, ReadFromThePhaseAndNotTheIncompleteCodonAtTheEnd) {
  const Genome genome = Genome::parse(">a\nGGTGGTGGTG\n");
  const Consequences consequences(genome, one(Strand::forward, {{0, 0, 10}}, 2), GeneticCode());
  EXPECT_EQ(of(consequences, 1, 'G', 'A'), "none");
  EXPECT_EQ(of(consequences, 4, 'G', 'A'), "nonsense");  // TGG to TGA; no initiator without phase 0
  EXPECT_EQ(of(consequences, 8, 'T', 'A'), "none");
}

TEST(Consequences, TakeTheMostSevereWhereGenesOverlap) {
  // ATGTGGTGA in frame 0; from index 1 TGT GGT: a change of index 4 G to A is TAG and GAT.
  const Genome genome = Genome::parse(">a\nATGTGGTGA\n");
  Annotation annotation = one(Strand::forward, {{0, 0, 9}});
  annotation.coding.push_back({"d", 0, Strand::forward, {{0, 1, 7}}, 0});
  const Consequences consequences(genome, annotation, GeneticCode());
  EXPECT_EQ(of(consequences, 4, 'G', 'A'), "nonsense");
  std::ranges::reverse(annotation.coding);
  EXPECT_EQ(of(Consequences(genome, annotation, GeneticCode()), 4, 'G', 'A'), "nonsense");
}

TEST(Consequences, LeaveOutAGeneWithAStopInsideUnlessTheCodeReadsItAsAnAminoAcid) {
  const Genome genome = Genome::parse(">a\nATGTGACTATAA\n");
  const Annotation annotation = one(Strand::forward, {{0, 0, 12}});
  const Consequences standard(genome, annotation, GeneticCode());
  EXPECT_EQ(standard.num_left_out(), 1U);
  EXPECT_EQ(standard.num_coding(), 0U);
  EXPECT_EQ(of(standard, 8, 'A', 'G'), "none");
  const Consequences mycoplasma(genome, annotation, GeneticCode(4));
  EXPECT_EQ(mycoplasma.num_left_out(), 0U);
  EXPECT_EQ(of(mycoplasma, 8, 'A', 'G'), "synonymous");
}

TEST(Consequences, OfACodonWithoutABaseAreNone) {
  const Genome genome = Genome::parse(">a\nATGNGGCTATAA\n");
  const Consequences consequences(genome, one(Strand::forward, {{0, 0, 12}}), GeneticCode());
  EXPECT_EQ(of(consequences, 5, 'G', 'A'), "none");
  EXPECT_EQ(of(consequences, 8, 'A', 'G'), "synonymous");
}

TEST(Consequences, HaveNames) {
  EXPECT_EQ(parse_consequence("missense"), Consequence::missense);
  EXPECT_THAT(message_of<InvalidArgument>([] { parse_consequence("nonsens"); }),
              ::testing::HasSubstr("did you mean \"nonsense\""));
}

}  // namespace
}  // namespace mantissa::genome
