#include "mantissa/genome/allele_windows.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/base/random.h"
#include "mantissa/genome/alphabet.h"

namespace mantissa::genome {
namespace {

Allele allele_of(const Genome& genome, uint64_t pos, std::string_view ref, std::string_view alt) {
  const std::string line = concat("a\t", pos, "\t.\t", ref, '\t', alt, "\t.\t.\t.");
  const CheckedVariant checked = check_variant(genome, parse_variant(line, "x"));
  EXPECT_FALSE(checked.alleles[0].unscored);
  return checked.alleles[0].allele;
}

AlleleWindows windows_of(const std::string& contig, uint64_t pos, std::string_view ref,
                         std::string_view alt, uint64_t length) {
  const Genome genome = Genome::parse(">a\n" + contig + "\n");
  return allele_windows(genome, allele_of(genome, pos, ref, alt), length);
}

std::string reverse_complement(std::string letters) {
  reverse_complement_({reinterpret_cast<uint8_t*>(letters.data()), letters.size()});
  return letters;
}

//                          1         11        21
const char* const kContig = "ACGTTGCAACGGTCATGACCATTGCAGTCC";

TEST(AlleleWindows, HaveASingleBaseInTheirMiddle) {
  const AlleleWindows windows = windows_of(kContig, 15, "A", "G", 8);
  ASSERT_FALSE(windows.unscored);
  EXPECT_EQ(windows.strands[0], (AlleleWindow{"GGTCATGA", "GGTCGTGA", 4, 1, 1}));
}

TEST(AlleleWindows, OfADeletionTakeMoreBasesFromBehindIt) {
  // CATGAC without ATG, or without TGA: the middle of 14 to 18 is 16.
  const AlleleWindows windows = windows_of(kContig, 14, "CATG", "C", 10);
  ASSERT_FALSE(windows.unscored);
  const std::string contig = kContig;
  EXPECT_EQ(windows.strands[0].reference, contig.substr(11, 10));
  EXPECT_EQ(windows.strands[0].alternative, contig.substr(11, 3) + contig.substr(17, 7));
  EXPECT_EQ(windows.strands[0].begin, 3U);
  EXPECT_EQ(windows.strands[0].reference_span, 4U);
  EXPECT_EQ(windows.strands[0].alternative_span, 1U);
}

TEST(AlleleWindows, OfAnInsertionGiveAsManyUp) {
  const AlleleWindows windows = windows_of(kContig, 14, "C", "CTT", 10);
  ASSERT_FALSE(windows.unscored);
  const std::string contig = kContig;
  EXPECT_EQ(windows.strands[0].reference, contig.substr(9, 10));
  EXPECT_EQ(windows.strands[0].alternative, contig.substr(9, 5) + "TT" + contig.substr(14, 3));
  // On the other strand what is given up is at the other end.
  EXPECT_EQ(reverse_complement(windows.strands[1].alternative),
            contig.substr(11, 3) + "TT" + contig.substr(14, 5));
}

// Of both strands, from the sequences with and without the change as texts.
TEST(AlleleWindows, BeginAtTheSameBaseAndAreOfTheTwoSequences) {
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed, 0);
    std::string contig;
    for (uint64_t i = 4 + random.below(40); i > 0; --i) {
      contig += "ACGT"[random.below(1 + random.below(4))];
    }
    const uint64_t begin = random.below(contig.size());
    const uint64_t size = 1 + random.below(std::min<uint64_t>(contig.size() - begin, 4));
    const std::string ref = contig.substr(begin, size);
    std::string alt;
    for (uint64_t i = 1 + random.below(4); i > 0; --i) {
      alt += "ACGT"[random.below(4)];
    }
    if (ref == alt) {
      continue;
    }
    const std::string changed = contig.substr(0, begin) + alt + contig.substr(begin + size);
    const uint64_t length = 2 + random.below(20);
    const AlleleWindows windows = windows_of(contig, begin + 1, ref, alt, length);
    if (windows.unscored) {
      continue;
    }
    for (const bool reverse : {false, true}) {
      const AlleleWindow& window = windows.strands[reverse ? 1 : 0];
      const std::string before = reverse ? reverse_complement(contig) : contig;
      const std::string after = reverse ? reverse_complement(changed) : changed;
      ASSERT_EQ(window.reference.size(), std::min({length, before.size(), after.size()}));
      ASSERT_EQ(window.alternative.size(), window.reference.size());
      ASSERT_NE(window.alternative, window.reference);
      bool found = false;
      for (size_t at = 0; at + window.reference.size() <= before.size(); ++at) {
        found = found || (before.compare(at, window.reference.size(), window.reference) == 0 &&
                          after.compare(at, window.reference.size(), window.alternative) == 0);
      }
      ASSERT_TRUE(found) << window.reference << " " << window.alternative;
      // Nothing differs before the change.
      ASSERT_EQ(window.reference.substr(0, window.begin),
                window.alternative.substr(0, window.begin));
      ASSERT_LT(window.begin, window.reference.size());
    }
  }
}

// A change and its reverse complement in the reverse complement of the genome: strands swapped.
TEST(AlleleWindows, FollowTheSameRuleOnBothStrands) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed, 0);
    std::string contig;
    for (int i = 0; i < 40; ++i) {
      contig += "ACGT"[random.below(1 + random.below(4))];
    }
    const uint64_t begin = random.below(36);
    const std::string ref = contig.substr(begin, 1 + random.below(4));
    std::string alt;
    for (uint64_t i = 1 + random.below(4); i > 0; --i) {
      alt += "ACGT"[random.below(4)];
    }
    if (ref == alt) {
      continue;
    }
    const uint64_t length = 2 + random.below(20);
    const AlleleWindows forward = windows_of(contig, begin + 1, ref, alt, length);
    const AlleleWindows reverse =
        windows_of(reverse_complement(contig), 40 - begin - ref.size() + 1, reverse_complement(ref),
                   reverse_complement(alt), length);
    ASSERT_EQ(forward.unscored, reverse.unscored);
    EXPECT_EQ(forward.strands[0], reverse.strands[1]);
    EXPECT_EQ(forward.strands[1], reverse.strands[0]);
  }
}

TEST(AlleleWindows, MoveInwardsAtTheEndsOfAContig) {
  const std::string contig = kContig;
  AlleleWindows windows = windows_of(contig, 1, "A", "G", 8);
  EXPECT_EQ(windows.strands[0], (AlleleWindow{"ACGTTGCA", "GCGTTGCA", 0, 1, 1}));
  EXPECT_EQ(windows.strands[1].begin, 7U);
  windows = windows_of(contig, 30, "C", "T", 8);
  EXPECT_EQ(windows.strands[0], (AlleleWindow{"TGCAGTCC", "TGCAGTCT", 7, 1, 1}));
  windows = windows_of("ACGTA", 2, "C", "T", 100);
  EXPECT_EQ(windows.strands[0], (AlleleWindow{"ACGTA", "ATGTA", 1, 1, 1}));
}

TEST(AlleleWindows, OfAChangeOfTheEndAloneHaveAReason) {
  const std::string contig = kContig;
  EXPECT_EQ(windows_of(contig, 28, "TCC", "T", 8).unscored, Unscored::contig_end);
  EXPECT_EQ(windows_of(contig, 1, "AC", "C", 8).unscored, Unscored::contig_end);
  EXPECT_EQ(windows_of(contig, 30, "C", "CGG", 8).unscored, Unscored::contig_end);
  EXPECT_EQ(windows_of("A", 1, "A", "G", 8).unscored, Unscored::contig_end);
}

TEST(AlleleWindows, OfAChangeThatDoesNotFitHaveAReason) {
  const std::string contig = kContig;
  EXPECT_FALSE(windows_of(contig, 14, "CATGA", "C", 8).unscored);
  EXPECT_EQ(windows_of(contig, 14, "CATGAC", "C", 8).unscored, Unscored::too_long);
  EXPECT_EQ(windows_of(contig, 14, "C", "CGGGGG", 8).unscored, Unscored::too_long);
  // One base more of eight: the whole repeat may be touched.
  EXPECT_EQ(windows_of("CGTAAAAAAAAGCTACGTA", 4, "A", "AA", 16).unscored, Unscored::too_long);
  EXPECT_FALSE(windows_of("CGTAAAAAAAAGCTACGTA", 4, "A", "AA", 18).unscored);
}

TEST(AlleleWindows, AreTheSameHoweverTheChangeIsWritten) {
  const Genome genome = Genome::parse(">a\nTGCGTCACACACAGTTGCATGCC\n");
  const AlleleWindows expected = allele_windows(genome, allele_of(genome, 5, "TCA", "T"), 16);
  ASSERT_FALSE(expected.unscored);
  const AlleleWindows written = allele_windows(genome, allele_of(genome, 10, "CACA", "CA"), 16);
  EXPECT_EQ(written.strands, expected.strands);
}

TEST(AlleleWindows, RefuseALengthBelowTwo) {
  const Genome genome = Genome::parse(">a\nACGT\n");
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              allele_windows(genome, {0, 1, "C", "G", 0}, 1);
            }),
            "allele windows: length 1; valid: 2 or more bases");
}

TEST(LogRatio, ComparesAsManyBasesOfEach) {
  const double none = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(log_ratio(std::vector<double>{none, -1, -2}, std::vector<double>{none, -2, -4}), -3);
  EXPECT_EQ(log_ratio(std::vector<double>{-1, -2, -4}, std::vector<double>{none, -2, -4}), -3);
  EXPECT_EQ(log_ratio(std::vector<double>{-1, none, -2}, std::vector<double>{-1, -8, -64}), -6);
  EXPECT_EQ(log_ratio(std::vector<double>{none}, std::vector<double>{-1}), 0);
}

}  // namespace
}  // namespace mantissa::genome
