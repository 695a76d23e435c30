#include "mantissa/genome/variant.h"

#include <algorithm>
#include <map>

#include <gmock/gmock.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/base/random.h"

namespace mantissa::genome {
namespace {

using ::testing::ElementsAre;

std::string line_of(std::string_view chrom, uint64_t pos, std::string_view ref,
                    std::string_view alt) {
  return concat(chrom, '\t', pos, "\t.\t", ref, '\t', alt, "\t.\t.\t.");
}

CheckedVariant check(const Genome& genome, const std::string& line) {
  return check_variant(genome, parse_variant(line, "x.vcf:1"));
}

// `kind reason` of each alternative, `-` for none.
std::vector<std::string> told(const Genome& genome, const std::string& line) {
  std::vector<std::string> result;
  for (const CheckedAllele& allele : check(genome, line).alleles) {
    result.push_back(
        concat(to_string(allele.kind), " ", allele.unscored ? to_string(*allele.unscored) : "-"));
  }
  return result;
}

const char* const kGenome = ">chr1\nACGTACGTNRACGTTTTTTGC\n>2\nGATTACA\n";

TEST(ParseVariant, ReadsTheColumnsAsTheyAre) {
  const std::string line = "chr1\t17\trs1\tAc\tA,<DEL>,*\t12.50\tq10;s50\tAF=0.1;DB\tGT\t0/1\r";
  const VariantLine variant = parse_variant(line, "x.vcf:3");
  EXPECT_EQ(variant.chrom, "chr1");
  EXPECT_EQ(variant.position, 17U);
  EXPECT_EQ(variant.reference, "Ac");
  EXPECT_THAT(variant.alternatives, ElementsAre("A", "<DEL>", "*"));
  EXPECT_EQ(variant.info, "AF=0.1;DB");
  const std::string none = line_of("1", 0, "A", ".");
  EXPECT_THAT(parse_variant(none, "").alternatives, ElementsAre());
}

TEST(ParseVariant, RefusesWhatIsNoRecord) {
  const auto error = [](const std::string& line) {
    return message_of<Corruption>([&] { parse_variant(line, "vcf x.vcf:9"); });
  };
  EXPECT_EQ(error("chr1\t17\trs1"),
            "vcf x.vcf:9: 3 columns; a record of a VCF file has 8 or more, with tabs between them");
  EXPECT_EQ(error("1\t-5\t.\tA\tC\t.\t.\t."),
            "vcf x.vcf:9: POS \"-5\" is no position; positions count from 1");
  EXPECT_EQ(error("1\t5\t.\t\tC\t.\t.\t."),
            "vcf x.vcf:9: column 4 is empty; \".\" stands for what is missing");
  EXPECT_EQ(error("1\t5\t.\tA\tC,,G\t.\t.\t."),
            "vcf x.vcf:9: ALT \"C,,G\" has an empty alternative; \".\" stands for a missing one");
}

TEST(WithInfo, ChangesNothingElse) {
  const auto added = [](const std::string& line) {
    return with_info(line, parse_variant(line, ""), "X=1;Y=2");
  };
  EXPECT_EQ(added("1\t5\t.\tA\tC\t29.500\tPASS\tAF=0.10;DB\tGT\t0|1"),
            "1\t5\t.\tA\tC\t29.500\tPASS\tAF=0.10;DB;X=1;Y=2\tGT\t0|1");
  EXPECT_EQ(added("1\t5\t.\tA\tC\t.\t.\t."), "1\t5\t.\tA\tC\t.\t.\tX=1;Y=2");
  EXPECT_EQ(added("1\t5\t.\tA\tC\t.\t.\t.\r"), "1\t5\t.\tA\tC\t.\t.\tX=1;Y=2\r");
  EXPECT_EQ(added("1\t5\t.\tA\tC\t.\t.\tDB;"), "1\t5\t.\tA\tC\t.\t.\tDB;X=1;Y=2");
  const std::string line = line_of("1", 5, "A", "C");
  EXPECT_EQ(with_info(line, parse_variant(line, ""), ""), line);
}

TEST(CheckVariant, TellsEveryKindApart) {
  const Genome genome = Genome::parse(kGenome);
  EXPECT_THAT(told(genome, line_of("2", 1, "G", "A")), ElementsAre("snv -"));
  EXPECT_THAT(told(genome, line_of("2", 1, "g", "a")), ElementsAre("snv -"));
  EXPECT_THAT(told(genome, line_of("2", 1, "GAT", "GCT")), ElementsAre("snv -"));
  EXPECT_THAT(told(genome, line_of("2", 1, "GAT", "CTA")), ElementsAre("mnv -"));
  EXPECT_THAT(told(genome, line_of("2", 1, "G", "GC")), ElementsAre("insertion -"));
  EXPECT_THAT(told(genome, line_of("2", 1, "GA", "G")), ElementsAre("deletion -"));
  EXPECT_THAT(told(genome, line_of("2", 1, "GA", "A")), ElementsAre("deletion -"));
  EXPECT_THAT(told(genome, line_of("2", 1, "GAT", "CC")), ElementsAre("complex -"));
  EXPECT_THAT(told(genome, line_of("2", 1, "G", "A,C,GT")),
              ElementsAre("snv -", "snv -", "insertion -"));
}

TEST(CheckVariant, HasAReasonForWhatHasNoSequence) {
  const Genome genome = Genome::parse(kGenome);
  EXPECT_THAT(told(genome, line_of("2", 1, "G", ".")), ElementsAre("reference no_alternative"));
  EXPECT_THAT(told(genome, line_of("2", 1, "G", "g")), ElementsAre("reference same_as_reference"));
  EXPECT_THAT(told(genome, line_of("2", 1, "G", "<DEL>,<*>,*,.,A")),
              ElementsAre("symbolic symbolic", "symbolic symbolic",
                          "overlapping_deletion overlapping_deletion",
                          "missing missing_alternative", "snv -"));
  EXPECT_THAT(told(genome, line_of("2", 1, "G", "G]17:198982],[2:3[G,G.,.G")),
              ElementsAre("breakend breakend", "breakend breakend", "breakend breakend",
                          "breakend breakend"));
  EXPECT_THAT(told(genome, line_of("2", 1, "G", "<DEL,E,A-")),
              ElementsAre("unreadable unreadable_allele", "unreadable unreadable_allele",
                          "unreadable unreadable_allele"));
  EXPECT_THAT(told(genome, line_of("2", 1, "5", "A")), ElementsAre("unreadable unreadable_allele"));
}

TEST(CheckVariant, ComparesWithTheGenome) {
  const Genome genome = Genome::parse(kGenome);
  EXPECT_THAT(told(genome, line_of("2", 1, "A", "G")), ElementsAre("snv reference_mismatch"));
  EXPECT_THAT(told(genome, line_of("3", 1, "A", "G,GA")),
              ElementsAre("snv contig_missing", "insertion contig_missing"));
  EXPECT_THAT(told(genome, line_of("2", 0, "G", "A")), ElementsAre("snv out_of_contig"));
  EXPECT_THAT(told(genome, line_of("2", 8, "G", "A")), ElementsAre("snv out_of_contig"));
  EXPECT_THAT(told(genome, line_of("2", 7, "AG", "A")), ElementsAre("deletion out_of_contig"));
  EXPECT_THAT(told(genome, line_of("2", 1, "GATTACAGATTACA", "G")),
              ElementsAre("deletion out_of_contig"));
  EXPECT_THAT(told(genome, line_of("2", ~uint64_t{0}, "G", "A")), ElementsAre("snv out_of_contig"));
  EXPECT_THAT(told(genome, line_of("2", 1, "G", "R")), ElementsAre("snv ambiguous_alternative"));
  // R in the FASTA: A agrees, as the specification wants, C does not; neither is scored.
  EXPECT_THAT(told(genome, line_of("1", 10, "A", "G")), ElementsAre("snv ambiguous_reference"));
  EXPECT_THAT(told(genome, line_of("1", 10, "C", "G")), ElementsAre("snv reference_mismatch"));
  EXPECT_THAT(told(genome, line_of("1", 9, "N", "G")), ElementsAre("snv ambiguous_reference"));
  EXPECT_THAT(told(genome, line_of("2", 1, "R", "C")), ElementsAre("snv ambiguous_reference"));
}

TEST(CheckVariant, FindsAContigWithOrWithoutChr) {
  const Genome genome = Genome::parse(kGenome);
  EXPECT_FALSE(check(genome, line_of("chr1", 1, "A", "G")).renamed_contig);
  EXPECT_TRUE(check(genome, line_of("1", 1, "A", "G")).renamed_contig);
  EXPECT_TRUE(check(genome, line_of("chr2", 1, "G", "A")).renamed_contig);
  EXPECT_FALSE(check(genome, line_of("chr3", 1, "G", "A")).renamed_contig);
  EXPECT_FALSE(check(genome, line_of("chr2", 1, "G", "A")).alleles[0].unscored);
}

Allele allele_of(const Genome& genome, uint64_t pos, std::string_view ref, std::string_view alt) {
  const CheckedVariant checked = check(genome, line_of("a", pos, ref, alt));
  EXPECT_FALSE(checked.alleles[0].unscored);
  return checked.alleles[0].allele;
}

// The example of Tan et al., figure 1: one deletion of CA in GGGCACACACAGGG, written five ways.
TEST(CheckVariant, AllWaysToWriteAChangeAreOne) {
  const Genome genome = Genome::parse(">a\nGGGCACACACAGGG\n");
  const Allele expected{0, 3, "CA", "", 6};
  EXPECT_EQ(allele_of(genome, 8, "CAC", "C"), (Allele{0, 3, "CA", "", 6}));
  EXPECT_EQ(allele_of(genome, 6, "CAC", "C"), expected);
  EXPECT_EQ(allele_of(genome, 2, "GGCA", "GG"), expected);
  EXPECT_EQ(allele_of(genome, 3, "GCACA", "GCA"), expected);
  EXPECT_EQ(allele_of(genome, 3, "GCA", "G"), expected);
}

TEST(CheckVariant, AnInsertionSlidesAlongItsRepeatToTheEndOfTheContig) {
  const Genome genome = Genome::parse(">a\nAAAACG\n");
  EXPECT_EQ(allele_of(genome, 2, "A", "AA"), (Allele{0, 0, "", "A", 4}));
  EXPECT_EQ(allele_of(genome, 6, "G", "GC"), (Allele{0, 6, "", "C", 0}));
  EXPECT_EQ(allele_of(genome, 6, "G", "GCG"), (Allele{0, 4, "", "CG", 2}));
  // Before the first base, as the specification writes it: with the base after it.
  EXPECT_EQ(allele_of(genome, 1, "A", "TA"), (Allele{0, 0, "", "T", 0}));
  // A letter that is no base ends a repeat.
  EXPECT_EQ(allele_of(Genome::parse(">a\nNAAN\n"), 2, "A", "AA"), (Allele{0, 1, "", "A", 2}));
}

std::string applied(const std::string& contig, const Allele& allele) {
  return contig.substr(0, allele.begin) + allele.alternative +
         contig.substr(allele.begin + allele.reference.size());
}

// What a record says, done to the text, against its normal form: the same sequence, at every place
// that it may slide to, and one form for all records with the same result.
TEST(CheckVariant, NormalFormsAreTheSameSequence) {
  std::map<std::string, Allele> by_result;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed, 0);
    const std::string contig = "ACACACGTTTTTTAACAACA";
    const Genome genome = Genome::parse(">a\n" + contig + "\n");
    const uint64_t begin = random.below(contig.size());
    const uint64_t size = 1 + random.below(std::min<uint64_t>(contig.size() - begin, 5));
    std::string alt;
    for (uint64_t i = 1 + random.below(5); i > 0; --i) {
      alt += "ACGT"[random.below(4)];
    }
    const std::string ref = contig.substr(begin, size);
    if (ref == alt) {
      continue;
    }
    const std::string expected = contig.substr(0, begin) + alt + contig.substr(begin + size);
    Allele allele = allele_of(genome, begin + 1, ref, alt);
    ASSERT_EQ(applied(contig, allele), expected);
    ASSERT_EQ(contig.substr(allele.begin, allele.reference.size()), allele.reference);
    if (allele.reference.empty() || allele.alternative.empty()) {
      ASSERT_EQ(by_result.emplace(expected, allele).first->second, allele);
    }
    for (uint64_t i = 0; i < allele.slide; ++i) {
      for (std::string* bases : {&allele.reference, &allele.alternative}) {
        if (!bases->empty()) {
          std::rotate(bases->begin(), bases->begin() + 1, bases->end());
        }
      }
      ++allele.begin;
      ASSERT_EQ(applied(contig, allele), expected);
    }
  }
}

TEST(Unscored, EveryReasonHasANameAndASentence) {
  for (auto i = 0; i <= static_cast<int>(Unscored::not_finite); ++i) {
    const auto reason = static_cast<Unscored>(i);
    EXPECT_EQ(to_string(reason).find_first_of(" ,;="), std::string_view::npos);
    EXPECT_GT(explain(reason).size(), 5U);
  }
  EXPECT_EQ(to_string(Unscored::not_finite), "not_finite");
  EXPECT_EQ(to_string(Unscored::ambiguous_reference), "ambiguous_reference");
}

}  // namespace
}  // namespace mantissa::genome
