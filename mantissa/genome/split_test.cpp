#include "mantissa/genome/split.h"

#include <gmock/gmock.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"

namespace mantissa::genome {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Genome example() {
  return Genome::parse(">chr1\nACGTACGTAC\n>chr2\nACGTACGTAC\n>none\n>chr10\nACGTACGTAC\n");
}

std::string error_of(const SplitSpec& spec) {
  return message_of<InvalidArgument>([&] { (void)split(example(), spec); });
}

TEST(Split, HoldsOutContigsByName) {
  const Split result = split(example(), {.validation = {"chr2"}, .test = {"chr10"}});
  EXPECT_THAT(result.train, ElementsAre(Interval{0, 0, 10}));
  EXPECT_THAT(result.validation, ElementsAre(Interval{1, 0, 10}));
  EXPECT_THAT(result.test, ElementsAre(Interval{3, 0, 10}));
}

TEST(Split, AllIsTrainWithoutASpec) {
  const Split result = split(example(), {});
  EXPECT_THAT(result.train,
              ElementsAre(Interval{0, 0, 10}, Interval{1, 0, 10}, Interval{3, 0, 10}));
  EXPECT_THAT(result.validation, IsEmpty());
}

TEST(Split, TakesPatterns) {
  const Split result = split(example(), {.validation = {"chr1*"}});
  EXPECT_THAT(result.validation, ElementsAre(Interval{0, 0, 10}, Interval{3, 0, 10}));
  EXPECT_THAT(result.train, ElementsAre(Interval{1, 0, 10}));
}

TEST(Split, CutsRegionsOutOfTrain) {
  const Split result =
      split(example(), {.validation = {"chr2:1-3"}, .test = {"chr2:6-7", "chr1:9-10"}});
  EXPECT_THAT(result.train, ElementsAre(Interval{0, 0, 8}, Interval{1, 3, 5}, Interval{1, 7, 10},
                                        Interval{3, 0, 10}));
  EXPECT_THAT(result.test, ElementsAre(Interval{0, 8, 10}, Interval{1, 5, 7}));
}

TEST(Split, MergesEntriesOfOneListAndKeepsTouchingListsApart) {
  const Split result =
      split(example(), {.validation = {"chr2:4-6", "chr2:1-4", "chr2:7-8"}, .test = {"chr2:9-"}});
  EXPECT_THAT(result.validation, ElementsAre(Interval{1, 0, 8}));
  EXPECT_THAT(result.test, ElementsAre(Interval{1, 8, 10}));
  EXPECT_THAT(result.train, ElementsAre(Interval{0, 0, 10}, Interval{3, 0, 10}));
}

TEST(Split, NamesWhatIsWrong) {
  EXPECT_EQ(error_of({.validation = {"chr3"}}),
            "genome: no contig \"chr3\"; did you mean \"chr1\"?");
  EXPECT_EQ(error_of({.validation = {"scaffold*"}}),
            "split: no contig matches \"scaffold*\"; the first of 4 is chr1");
  EXPECT_EQ(error_of({.test = {"chr1:5-11"}}),
            "region \"chr1:5-11\": 5 to 11 is not within chr1; valid positions: 1 to 10");
  EXPECT_EQ(error_of({.validation = {"chr1", "chr2"}, .test = {"chr10", "chr2:10-10"}}),
            "split: validation chr2:1-10 and test chr2:10-10 overlap; hold each base out for one "
            "of them");
  EXPECT_EQ(error_of({.validation = {"chr1", "chr2"}, .test = {"chr10"}}),
            "split: validation and test hold all 30 bases; leave some to train on");
  EXPECT_EQ(error_of({.test = {"none"}}),
            "split: test names \"none\", which has no bases; hold out contigs that have some");
  EXPECT_EQ(message_of<InvalidArgument>([] { (void)split(Genome::parse(">a\n>b\n"), {}); }),
            "split: the genome has no bases; give a FASTA file with sequences after its headers");
}

}  // namespace
}  // namespace mantissa::genome
