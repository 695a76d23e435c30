#include "mantissa/train/variant_scorer.h"

#include <cmath>
#include <map>
#include <sstream>

#include <gmock/gmock.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/genome/variant.h"
#include "mantissa/train/scored_model_testing.h"
#include "mantissa/train/tiny_run_test.h"

namespace mantissa::train {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using VariantScorerTest = TinyRunTest;

const char* const kNumber = "-?[0-9.e-]+";

// Each record of kEveryKind that is scored by the name in its column ID, as annotated.
std::map<std::string, std::string> annotated(const VariantScorer& variants) {
  std::map<std::string, std::string> result;
  std::istringstream lines(kEveryKind);
  for (std::string line; std::getline(lines, line);) {
    std::string name = line.substr(line.find('\t', line.find('\t') + 1) + 1);
    result[name.substr(0, name.find('\t'))] = variants.annotate(line, "x");
  }
  EXPECT_EQ(result.size(), static_cast<size_t>(kEveryKindRecords));
  return result;
}

TEST_F(VariantScorerTest, EveryKindIsScoredOrHasItsReason) {
  const ScoredModel model(config(), kScoredFasta);
  const auto records = annotated(model.variants());
  const std::map<std::string, std::string> scored = {
      {"snv", "snv"},           {"mnv", "mnv"},         {"insertion", "insertion"},
      {"deletion", "deletion"}, {"complex", "complex"}, {"n_nearby", "snv"},
      {"renamed", "snv"},       {"renamed_too", "snv"}, {"end", "snv"}};
  for (const auto& [name, kind] : scored) {
    EXPECT_THAT(records.at(name),
                ContainsRegex(concat("M_KIND=", kind, ";M_LLR=", kNumber,
                                     ";M_LLR_FORWARD=", kNumber, ";M_LLR_REVERSE=", kNumber, "$")));
  }
  const std::map<std::string, std::string> explained = {
      {"after_base", "deletion;M_REASON=contig_end"},
      {"symbolic", "symbolic;M_REASON=symbolic"},
      {"star", "overlapping_deletion;M_REASON=overlapping_deletion"},
      {"breakend", "breakend;M_REASON=breakend"},
      {"same", "reference;M_REASON=same_as_reference"},
      {"mismatch", "snv;M_REASON=reference_mismatch"},
      {"ambiguous_alt", "snv;M_REASON=ambiguous_alternative"},
      {"ambiguous_ref", "snv;M_REASON=ambiguous_reference"},
      {"no_contig", "snv;M_REASON=contig_missing"},
      {"outside", "snv;M_REASON=out_of_contig"},
      {"telomere", "snv;M_REASON=out_of_contig"},
      {"unreadable", "unreadable;M_REASON=unreadable_allele"},
      {"too_long", "deletion;M_REASON=too_long"}};
  for (const auto& [name, expected] : explained) {
    EXPECT_THAT(records.at(name), HasSubstr("M_KIND=" + expected)) << name;
    EXPECT_THAT(records.at(name), Not(HasSubstr("M_LLR"))) << name;
  }
  EXPECT_THAT(records.at("missing"), ::testing::EndsWith("\tM_NO_ALTERNATIVE"));
  for (const auto& [name, record] : records) {
    const bool is_renamed = name.starts_with("renamed");
    EXPECT_EQ(record.find("\tM_RENAMED_CONTIG;") != std::string::npos, is_renamed) << name;
  }
  EXPECT_EQ(scored.size() + explained.size() + 4, records.size());  // missing and those below
}

TEST_F(VariantScorerTest, SeveralAlternativesStandInTheirOrder) {
  const ScoredModel model(config(), kScoredFasta);
  const auto records = annotated(model.variants());
  EXPECT_THAT(records.at("several"),
              ContainsRegex(concat(
                  "DB;M_KIND=snv,insertion,symbolic,overlapping_deletion;M_LLR=", kNumber, ",",
                  kNumber, ",\\.,\\.;.*M_REASON=\\.,\\.,symbolic,", "overlapping_deletion$")));
  EXPECT_THAT(records.at("unsorted"), StartsWith("a\t10\tunsorted\tC\tG,T\t50\tPASS\tAF=0.5,0.1;"));
  EXPECT_THAT(records.at("unsorted"), ::testing::EndsWith("\tGT\t1/2"));
  // The score of an alternative is that of a record with it alone.
  const auto ratio = [&](const std::string& line) {
    const std::string record = model.variants().annotate(line, "x");
    const size_t begin = record.find("M_LLR=") + 6;
    return record.substr(begin, record.find_first_of(",;", begin) - begin);
  };
  EXPECT_EQ(ratio("a\t20\t.\tC\tA\t.\t.\t."), ratio("a\t20\t.\tC\tA,CG\t.\t.\t."));
  EXPECT_EQ(ratio("a\t20\t.\tC\tA\t.\t.\t."), ratio("a\t19\t.\tcca\tcaa\t.\t.\t."));
}

TEST_F(VariantScorerTest, IsComparedWithFp32ByTheChangeAlone) {
  const ScoredModel model(config({{"precision.compute", "bf16"}}), kScoredFasta);
  VariantScorer variants = model.variants();
  variants.fp32 = &model.fp32();
  EXPECT_THAT(annotated(variants).at("snv"), HasSubstr(";M_LLR_FP32="));
  variants.fp32_share = 0;
  EXPECT_THAT(annotated(variants).at("snv"), Not(HasSubstr(";M_LLR_FP32=")));
  variants.fp32_share = 0.5;
  int with = 0;
  int all = 0;
  for (int position = 1; position <= 60; ++position) {
    const char base = kScoredFasta[2 + position];
    const std::string line =
        concat("a\t", position, "\t.\t", base, "\t", base == 'A' ? 'C' : 'A', "\t.\t.\t.");
    const bool is_in = variants.annotate(line, "x").find("FP32=") != std::string::npos;
    EXPECT_EQ(variants.annotate(line, "x").find("FP32=") != std::string::npos, is_in);
    with += is_in ? 1 : 0;
    ++all;
  }
  // Binomial of 60 halves: six deviations of 3.9 around 30.
  EXPECT_GT(with, 30 - 24);
  EXPECT_LT(with, 30 + 24);
}

TEST_F(VariantScorerTest, HasConsequencesAndTheRatioOfTheMarkovModel) {
  const ScoredModel model(config(), kScoredFasta);
  // ATG ACC ATT GCA, from base 15 of a.
  const genome::Consequences consequences(
      model.genome(), {{{"c", 0, genome::Strand::forward, {{0, 14, 26}}, 0}}, 0},
      genome::GeneticCode());
  const genome::MarkovChain markov(model.genome(), {{0, 0, 60}}, 0);
  VariantScorer variants = model.variants();
  variants.consequences = &consequences;
  variants.markov = &markov;
  const std::string record = variants.annotate("a\t20\t.\tC\tA,G,CG\t.\t.\t.", "x");
  EXPECT_THAT(record, HasSubstr("M_CONSEQUENCE=synonymous,synonymous,."));
  // Of order 0 all other bases cancel.
  const auto log_p = [&](const char* base) { return markov.log_probabilities(base)[0]; };
  const size_t begin = record.find("M_LLR_MARKOV=") + 13;
  // The sum of 32 cancelling terms, printed as FP32.
  EXPECT_NEAR(std::stod(record.substr(begin)), log_p("A") - log_p("C"), 1e-5);
}

TEST_F(VariantScorerTest, SaysWhereALineIsNoRecord) {
  const ScoredModel model(config(), kScoredFasta);
  EXPECT_THAT(message_of<Corruption>([&] { (void)model.variants().annotate("a\t1", "vcf x:7"); }),
              StartsWith("vcf x:7: "));
}

TEST(FloatText, IsTheShortestThatIsReadBack) {
  EXPECT_EQ(float_text(-1.5), "-1.5");
  EXPECT_EQ(float_text(1.0 / 3), "0.33333334");
  EXPECT_EQ(float_text(1e-9), "1e-09");
}

TEST(ScoreFields, AreDeclaredWithTheirPrefix) {
  const ScoreFields fields("DNA_2");
  EXPECT_EQ(fields.llr, "DNA_2_LLR");
  EXPECT_THAT(fields.declarations(), ::testing::Each(StartsWith("##INFO=<ID=DNA_2_")));
  EXPECT_EQ(fields.declarations().size(), 10U);
  for (const char* wrong : {"", "1A", "A B", "A;B", "_A"}) {
    EXPECT_THAT(message_of<InvalidArgument>([&] { ScoreFields{wrong}; }),
                HasSubstr("valid: letters, digits and _"));
  }
}

}  // namespace
}  // namespace mantissa::train
