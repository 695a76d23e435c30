#include "mantissa/genome/interval.h"

#include <gmock/gmock.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/genome/genome.h"

namespace mantissa::genome {
namespace {

// Contigs of 10 bases, one with a colon in its name as HLA alleles have.
Genome example() {
  return Genome::parse(">chrI\nACGTACGTAC\n>HLA:01\nACGTACGTAC\n>HLA\nACGTACGTAC\n");
}

TEST(Interval, ReadsRegionsAsSamtoolsDoes) {
  const Genome genome = example();
  EXPECT_EQ(parse_region(genome, "chrI"), (Interval{0, 0, 10}));
  EXPECT_EQ(parse_region(genome, "chrI:2-5"), (Interval{0, 1, 5}));
  EXPECT_EQ(parse_region(genome, "chrI:1-1,0"), (Interval{0, 0, 10}));
  EXPECT_EQ(parse_region(genome, "chrI:4"), (Interval{0, 3, 10}));
  EXPECT_EQ(parse_region(genome, "chrI:4-"), (Interval{0, 3, 10}));
  EXPECT_EQ(parse_region(genome, "chrI:-4"), (Interval{0, 0, 4}));
  EXPECT_EQ(parse_region(genome, "chrI:10-10"), (Interval{0, 9, 10}));
}

TEST(Interval, AWholeNameComesBeforeARegion) {
  const Genome genome = example();
  EXPECT_EQ(parse_region(genome, "HLA:01"), (Interval{1, 0, 10}));
  EXPECT_EQ(parse_region(genome, "HLA:01:2-3"), (Interval{1, 1, 3}));
  EXPECT_EQ(parse_region(genome, "HLA:2-3"), (Interval{2, 1, 3}));
}

TEST(Interval, TextAndValueAreInverse) {
  const Genome genome = example();
  const Interval interval{1, 3, 7};
  EXPECT_EQ(to_string(genome, interval), "HLA:01:4-7");
  EXPECT_EQ(parse_region(genome, to_string(genome, interval)), interval);
}

TEST(Interval, NamesWhatIsWrong) {
  const Genome genome = example();
  const auto error = [&](std::string_view text) {
    return message_of<InvalidArgument>([&] { (void)parse_region(genome, text); });
  };
  EXPECT_EQ(error("chrJ:1-2"), "genome: no contig \"chrJ\"; did you mean \"chrI\"?");
  EXPECT_EQ(error("chrI:3-11"),
            "region \"chrI:3-11\": 3 to 11 is not within chrI; valid positions: 1 to 10");
  EXPECT_EQ(error("chrI:0-5"),
            "region \"chrI:0-5\": 0 to 5 is not within chrI; valid positions: 1 to 10");
  EXPECT_EQ(error("chrI:5-4"),
            "region \"chrI:5-4\": 5 to 4 is not within chrI; valid positions: 1 to 10");
  EXPECT_EQ(error("chrI:a-4"),
            "region \"chrI:a-4\": \"a\" is no position; write name:first-last, counted from 1");
  EXPECT_EQ(error("chrI:1-99999999999999999999"),
            "region \"chrI:1-99999999999999999999\": \"99999999999999999999\" is no position; "
            "write name:first-last, counted from 1");
}

}  // namespace
}  // namespace mantissa::genome
