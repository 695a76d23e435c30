#include "mantissa/genome/windows.h"

#include <map>

#include <gmock/gmock.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/base/random.h"

namespace mantissa::genome {
namespace {

using ::testing::ElementsAre;

Genome genome_of(const std::string& letters) { return Genome::parse(">a\n" + letters + "\n"); }

std::vector<std::pair<uint64_t, uint64_t>> starts_and_fresh(const Windows& windows) {
  std::vector<std::pair<uint64_t, uint64_t>> all;
  for (uint64_t i = 0; i < windows.size(); ++i) {
    all.emplace_back(windows.at(i).bases.begin, windows.at(i).fresh);
  }
  return all;
}

TEST(Windows, FollowEachOtherAndTheLastEndsWithTheInterval) {
  const Genome genome = genome_of("ACGTACGTAC");
  EXPECT_THAT(starts_and_fresh({genome, {{0, 0, 10}}, {.length = 4, .stride = 4}}),
              ElementsAre(std::pair(0, 0), std::pair(4, 4), std::pair(6, 8)));
  EXPECT_THAT(starts_and_fresh({genome, {{0, 1, 9}}, {.length = 4, .stride = 4}}),
              ElementsAre(std::pair(1, 1), std::pair(5, 5)));
  EXPECT_THAT(starts_and_fresh({genome, {{0, 0, 10}}, {.length = 4, .stride = 3}}),
              ElementsAre(std::pair(0, 0), std::pair(3, 4), std::pair(6, 7)));
  EXPECT_THAT(starts_and_fresh({genome, {{0, 0, 10}}, {.length = 2, .stride = 5}}),
              ElementsAre(std::pair(0, 0), std::pair(5, 5), std::pair(8, 8)));
}

TEST(Windows, NeverCrossAnInterval) {
  const Genome genome = Genome::parse(">a\nACGTACGTAC\n>b\nACGTA\n");
  const Windows windows(genome, {{0, 0, 4}, {0, 6, 10}, {1, 0, 5}}, {.length = 3, .stride = 3});
  ASSERT_EQ(windows.size(), 6U);
  EXPECT_EQ(windows.at(2).bases, (Interval{0, 6, 9}));
  EXPECT_EQ(windows.at(3).bases, (Interval{0, 7, 10}));
  EXPECT_EQ(windows.at(4).bases, (Interval{1, 0, 3}));
}

TEST(Windows, SkipAndCountGapsAndShortPieces) {
  const Genome genome = genome_of("ACGTNNNACNNNNACGTAC");
  const Windows windows(genome, {{0, 0, 19}}, {.length = 4, .stride = 4, .min_gap = 3});
  EXPECT_THAT(starts_and_fresh(windows),
              ElementsAre(std::pair(0, 0), std::pair(13, 13), std::pair(15, 17)));
  EXPECT_EQ(windows.skipped().gaps, 2U);
  EXPECT_EQ(windows.skipped().gap_bases, 7U);
  EXPECT_EQ(windows.skipped().short_pieces, 1U);
  EXPECT_EQ(windows.skipped().short_piece_bases, 2U);
}

TEST(Windows, KeepShortRunsOfUnknownLetters) {
  const Genome genome = genome_of("ACNNGTRA");
  const Windows windows(genome, {{0, 0, 8}}, {.length = 8, .stride = 8, .min_gap = 3});
  EXPECT_EQ(windows.size(), 1U);
  EXPECT_EQ(windows.skipped().gaps, 0U);
}

TEST(Windows, ReadTouchingRunsOfDifferentLettersAsOneGap) {
  const Genome genome = genome_of("ACGTNRYNACGT");
  const Windows windows(genome, {{0, 0, 12}}, {.length = 4, .stride = 4, .min_gap = 4});
  EXPECT_THAT(starts_and_fresh(windows), ElementsAre(std::pair(0, 0), std::pair(8, 8)));
  EXPECT_EQ(windows.skipped().gap_bases, 4U);
}

TEST(Windows, CountAGapOnlyAsFarAsTheIntervalGoes) {
  const Genome genome = genome_of("NNNNACGTNNNN");
  const Windows windows(genome, {{0, 2, 11}}, {.length = 4, .stride = 4, .min_gap = 2});
  EXPECT_EQ(windows.size(), 1U);
  EXPECT_EQ(windows.skipped().gap_bases, 5U);
}

TEST(Windows, RefuseASequenceShorterThanAWindow) {
  const Genome genome = genome_of("ACGTNNNNNNNNNNNNACGTAC");
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              const Windows windows(genome, {{0, 0, 22}}, {.length = 7, .stride = 7});
            }),
            "windows: the longest stretch without a gap (10 or more N or other letters than A, C, "
            "G and T) has 6 bases, a window needs 7; use a shorter context or a longer sequence");
}

TEST(Windows, RefuseASequenceOfGapsAlone) {
  const Genome genome = genome_of("NNNNNNNNRRNNNNNNNNNNNN");
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              const Windows windows(genome, {{0, 0, 22}}, {.length = 7, .stride = 7});
            }),
            "windows: the longest stretch without a gap (10 or more N or other letters than A, C, "
            "G and T) has 0 bases, a window needs 7; give a sequence whose bases are known");
}

TEST(Windows, RefuseSettingsOutOfRange) {
  const Genome genome = genome_of("ACGT");
  const auto error = [&](const WindowOptions& options) {
    return message_of<InvalidArgument>([&] {
      const Windows windows(genome, {{0, 0, 4}}, options);
    });
  };
  EXPECT_EQ(error({.length = 0, .stride = 1}), "windows: length 0; valid: 1 or more bases");
  EXPECT_EQ(error({.length = 1, .stride = 0}), "windows: stride 0; valid: 1 or more bases");
  EXPECT_EQ(error({.length = 1, .stride = 1, .min_gap = 0}),
            "windows: min_gap 0; valid: 1 or more");
  const Windows windows(genome, {{0, 0, 4}}, {.length = 2, .stride = 2});
  EXPECT_EQ(message_of<InvalidArgument>([&] { (void)windows.at(2); }),
            "windows: window 2 of 2; valid: 0 to 1");
}

// For any genome, length and stride up to the length: every base outside gaps and short pieces is
// fresh in exactly one window, and no window holds a gap.
TEST(Windows, FreshBasesCoverEachBaseOnce) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed, 0);
    std::string letters = "ACGTACGTACGTACGTACGTACGT";
    for (int i = 0; i < 30; ++i) {
      letters.append(1 + random.below(12), "ACGTN"[random.below(5)]);
    }
    const Genome genome = genome_of(letters);
    const uint64_t length = 1 + random.below(20);
    const WindowOptions options{length, 1 + random.below(length), 1 + random.below(6)};
    const Interval whole{0, 0, letters.size()};
    const Windows windows(genome, {whole}, options);
    std::map<uint64_t, int> times;
    for (uint64_t i = 0; i < windows.size(); ++i) {
      const Window window = windows.at(i);
      ASSERT_EQ(window.bases.size(), length);
      ASSERT_LE(window.fresh, window.bases.end);
      for (uint64_t base = window.fresh; base < window.bases.end; ++base) {
        ++times[base];
      }
      const std::string held = letters.substr(window.bases.begin, length);
      ASSERT_EQ(held.find(std::string(options.min_gap, 'N')), std::string::npos);
    }
    for (const auto& [base, count] : times) {
      ASSERT_EQ(count, 1) << base;
    }
    const Skipped& skipped = windows.skipped();
    ASSERT_EQ(times.size() + skipped.gap_bases + skipped.short_piece_bases, letters.size());
  }
}

}  // namespace
}  // namespace mantissa::genome
