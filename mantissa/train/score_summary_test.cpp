#include "mantissa/train/score_summary.h"

#include <gmock/gmock.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/base/scratch_folder.h"

namespace mantissa::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class ScoreSummaryTest : public ::testing::Test {
 protected:
  // Lines of ALT and INFO, in which "P_" is the prefix.
  ScoreSummary summarize(const std::vector<std::pair<std::string, std::string>>& records,
                         const std::optional<ScoreLabels>& labels = {}) const {
    std::string text = "##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n";
    for (const auto& [alt, info] : records) {
      text += "1\t5\t.\tA\t" + alt + "\t.\t.\t" + info + "\n";
    }
    return summarize_scores(folder_.write("x.vcf", text), ScoreFields("P"), labels);
  }

  ScratchFolder folder_;
};

TEST_F(ScoreSummaryTest, AccountsForEveryRecordAndAlternative) {
  const ScoreSummary summary = summarize({
      {"C", "P_KIND=snv;P_LLR=-1.5"},
      {"C,<DEL>", "AF=1,2;P_KIND=snv,symbolic;P_LLR=-1,.;P_REASON=.,symbolic"},
      {"*", "P_RENAMED_CONTIG;P_KIND=overlapping_deletion;P_REASON=overlapping_deletion"},
      {".", "P_NO_ALTERNATIVE"},
  });
  EXPECT_EQ(summary.records, 4U);
  EXPECT_EQ(summary.scored_records, 1U);
  EXPECT_EQ(summary.part_records, 1U);
  EXPECT_EQ(summary.explained_records, 2U);
  EXPECT_EQ(summary.alternatives, 5U);
  EXPECT_EQ(summary.scored, 2U);
  EXPECT_EQ(summary.renamed, 1U);
  EXPECT_THAT(summary.kinds, ElementsAre(Pair("overlapping_deletion", 1), Pair("reference", 1),
                                         Pair("snv", 2), Pair("symbolic", 1)));
  EXPECT_THAT(summary.reasons, ElementsAre(Pair("no_alternative", 1),
                                           Pair("overlapping_deletion", 1), Pair("symbolic", 1)));
  EXPECT_FALSE(summary.agreement);
  EXPECT_FALSE(summary.separation);
}

TEST_F(ScoreSummaryTest, RefusesAnAlternativeThatIsNotAccountedFor) {
  const auto error = [&](const char* alt, const char* info) {
    return message_of<Corruption>([&] { (void)summarize({{alt, info}}); });
  };
  EXPECT_THAT(error("C", "P_KIND=snv"), HasSubstr("x.vcf:3: ALT \"C\" has neither score nor"));
  EXPECT_THAT(error("C", "P_LLR=1;P_REASON=symbolic"), HasSubstr("has a score and a reason"));
  EXPECT_THAT(error("C,G", "P_LLR=1"), HasSubstr("ALT \"G\" has neither"));
  EXPECT_THAT(error("C", "P_LLR=x"), HasSubstr("\"x\" is no number"));
  EXPECT_THAT(error(".", "AF=1"), HasSubstr("has no mark of scoring"));
}

TEST_F(ScoreSummaryTest, ComparesTheOrderWithFp32) {
  const ScoreSummary summary = summarize({
      {"C", "P_KIND=snv;P_LLR=-1;P_LLR_FP32=-1.25"},
      {"G", "P_KIND=snv;P_LLR=-2;P_LLR_FP32=-2"},
      {"AT,T", "P_KIND=insertion,snv;P_LLR=-9,-3;P_LLR_FP32=-8,-1.5"},
      {"T", "P_KIND=snv;P_LLR=-3"},
  });
  ASSERT_TRUE(summary.agreement);
  EXPECT_EQ(summary.agreement->pairs, 4U);
  // Ranks 4 3 1 2 and 4 2 1 3: 1 - 6 * (1 + 1) / 60.
  EXPECT_DOUBLE_EQ(summary.agreement->spearman, 0.8);
  EXPECT_EQ(summary.agreement->snv_pairs, 3U);
  EXPECT_DOUBLE_EQ(summary.agreement->snv_spearman, 0.5);
  EXPECT_EQ(summary.agreement->largest_difference, 1.5);
}

TEST_F(ScoreSummaryTest, SeparatesLabelsWithTies) {
  const ScoreSummary summary = summarize(
      {
          {"C", "P_KIND=snv;P_LLR=-3;P_LLR_MARKOV=0;P_CONSEQUENCE=nonsense"},
          {"C", "P_KIND=snv;P_LLR=-1;P_LLR_MARKOV=0;P_CONSEQUENCE=nonsense"},
          {"C", "P_KIND=snv;P_LLR=-1;P_LLR_MARKOV=0;P_CONSEQUENCE=synonymous"},
          {"C", "P_KIND=snv;P_LLR=0;P_LLR_MARKOV=-1;P_CONSEQUENCE=synonymous"},
          {"C", "P_KIND=snv;P_LLR=-9;P_LLR_MARKOV=9;P_CONSEQUENCE=missense"},
          {"C", "P_KIND=snv;P_LLR=-9"},
      },
      ScoreLabels{});
  ASSERT_TRUE(summary.separation);
  EXPECT_EQ(summary.separation->benign, 2U);
  EXPECT_EQ(summary.separation->harmful, 2U);
  EXPECT_EQ(summary.separation->model.value, 3.5 / 4);
  ASSERT_TRUE(summary.separation->markov);
  EXPECT_EQ(summary.separation->markov->value, 1.0 / 4);
  EXPECT_THAT(summary.consequences,
              ElementsAre(Pair("missense", 1), Pair("nonsense", 2), Pair("synonymous", 2)));
}

TEST(ParseScoreLabels, TakesTwoDifferentConsequences) {
  const ScoreLabels labels = parse_score_labels("missense,stop_lost");
  EXPECT_EQ(labels.benign, genome::Consequence::missense);
  EXPECT_EQ(labels.harmful, genome::Consequence::stop_lost);
  EXPECT_THAT(message_of<InvalidArgument>([] { parse_score_labels("missense"); }),
              HasSubstr("give two consequences"));
  EXPECT_THAT(message_of<InvalidArgument>([] { parse_score_labels("missense,missense"); }),
              HasSubstr("are the same"));
  EXPECT_THAT(message_of<InvalidArgument>([] { parse_score_labels("missense,nonsens"); }),
              HasSubstr("did you mean \"nonsense\""));
}

}  // namespace
}  // namespace mantissa::train
