#include "mantissa/genome/genome.h"

#include <filesystem>

#include <gmock/gmock.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/base/random.h"
#include "mantissa/base/scratch_folder.h"

namespace mantissa::genome {
namespace {

using ::testing::HasSubstr;

std::string fetch(const Genome& genome, const Interval& interval) {
  std::vector<uint8_t> letters(interval.size());
  genome.fetch(interval, letters);
  return {letters.begin(), letters.end()};
}

TEST(Genome, ListsContigsWithTheirLengths) {
  const Genome genome = Genome::parse(">chrI\nACGTACG\n>empty\n>chrII\nAC\n");
  ASSERT_EQ(genome.contigs().size(), 3U);
  EXPECT_EQ(genome.contigs()[0].name, "chrI");
  EXPECT_EQ(genome.contigs()[0].length, 7U);
  EXPECT_EQ(genome.contigs()[1].length, 0U);
  EXPECT_EQ(genome.num_bases(), 9U);
  EXPECT_EQ(genome.index_of("chrII"), 2U);
  EXPECT_EQ(genome.find("chrIII"), std::nullopt);
}

TEST(Genome, FetchesUpperCaseWhateverTheCase) {
  const Genome genome = Genome::parse(">a\nACgtnRyA\n");
  EXPECT_EQ(fetch(genome, {0, 0, 8}), "ACGTNRYA");
  EXPECT_EQ(genome.count_soft_masked({0, 0, 8}), 4U);
  EXPECT_EQ(genome.count_soft_masked({0, 3, 5}), 2U);
  EXPECT_EQ(genome.count_unknown({0, 0, 8}), 3U);
  EXPECT_EQ(genome.count_unknown({0, 5, 8}), 2U);
  EXPECT_EQ(genome.count_unknown({0, 7, 8}), 0U);
}

// Against the text itself, at every phase within the packed bytes.
TEST(Genome, FetchesAnyIntervalOfARandomSequence) {
  constexpr std::string_view kLetters = "ACGTACGTACGTACGTACGTacgtnNNNNNRyswkmBDHV";
  const uint64_t seed = 3;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Random random(seed, 0);
  std::string text;
  std::string upper;
  for (int i = 0; i < 3000; ++i) {
    const uint64_t run = random.below(10) == 0 ? 1 + random.below(20) : 1;
    text.append(run, kLetters[random.below(kLetters.size())]);
  }
  for (const char c : text) {
    upper += static_cast<char>(std::toupper(c));
  }
  const Genome genome = Genome::parse(">x\nAC\n>a\n" + text + "\n");
  for (int i = 0; i < 2000; ++i) {
    const uint64_t begin = random.below(text.size() + 1);
    const uint64_t end = begin + random.below(std::min<uint64_t>(text.size() - begin, 70) + 1);
    ASSERT_EQ(fetch(genome, {1, begin, end}), upper.substr(begin, end - begin)) << begin;
    const auto part = std::string_view(text).substr(begin, end - begin);
    const auto masked = std::count_if(part.begin(), part.end(), [](char c) { return c >= 'a'; });
    ASSERT_EQ(genome.count_soft_masked({1, begin, end}), static_cast<uint64_t>(masked)) << begin;
  }
}

TEST(Genome, TakesTwoBitsABase) {
  std::string text = ">a\n";
  text.append(1000000, 'G');
  const Genome genome = Genome::parse(text);
  EXPECT_EQ(genome.memory_bytes(), 250000U);
}

TEST(Genome, SuggestsTheNearestContig) {
  const Genome genome = Genome::parse(">chr15\nAC\n>chr16\nAC\n");
  EXPECT_EQ(message_of<InvalidArgument>([&] { (void)genome.index_of("chr51"); }),
            "genome: no contig \"chr51\"; did you mean \"chr15\"?");
  EXPECT_EQ(message_of<InvalidArgument>([&] { (void)genome.index_of("mitochondrion"); }),
            "genome: no contig \"mitochondrion\"; valid: chr15 chr16");
}

TEST(Genome, DoesNotListAThousandContigs) {
  std::string text;
  for (int i = 0; i < 1000; ++i) {
    text += concat(">scaffold_", i, "\nA\n");
  }
  EXPECT_EQ(message_of<InvalidArgument>([&] { (void)Genome::parse(text).index_of("X"); }),
            "genome: no contig \"X\"; it has 1000, the first is scaffold_0");
}

TEST(Genome, RefusesIntervalsOutOfBoundsAndTheWrongRoom) {
  const Genome genome = Genome::parse(">a\nACGT\n");
  std::vector<uint8_t> letters(4);
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              genome.fetch({0, 1, 5}, letters);
            }),
            "genome: interval 1 to 5 of a; valid: 0 to 4");
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              genome.fetch({1, 0, 4}, letters);
            }),
            "genome: contig 1 of 1; valid: 0 to 0");
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              genome.fetch({0, 0, 3}, letters);
            }),
            "fetch: room for 4 letters, the interval has 3; give as much as it has");
}

TEST(Genome, OpensTheBundledGenomes) {
  const std::filesystem::path data = std::filesystem::path(MANTISSA_SOURCE_DIR) / "data";
  const ScratchFolder folder;
  std::filesystem::copy(data / "lambda.fa", folder.path());
  std::filesystem::copy(data / "phix174.fa", folder.path());
  const Genome lambda = Genome::open(folder.path() / "lambda.fa");
  EXPECT_EQ(lambda.contigs()[0].name, "NC_001416.1");
  EXPECT_EQ(lambda.num_bases(), 48502U);
  EXPECT_EQ(fetch(lambda, {0, 0, 12}), "GGGCGGCGACCT");
  const Genome phix = Genome::open(folder.path() / "phix174.fa");
  EXPECT_EQ(phix.num_bases(), 5386U);
  EXPECT_EQ(fetch(phix, {0, 0, 10}), "GAGTTTTATC");
}

TEST(Genome, OpenMakesTheIndexAndChecksTheFileAgainstIt) {
  const ScratchFolder folder;
  const auto path = folder.write("x.fa", ">a\nACGT\nAC\n>b\nGGG\n");
  EXPECT_EQ(Genome::open(path).num_bases(), 9U);
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "x.fa.fai"));
  EXPECT_EQ(Genome::open(path).num_bases(), 9U);
  folder.write("x.fa", ">a\nACGT\nAC\n>b\nGG");
  EXPECT_THAT(message_of<Corruption>([&] { (void)Genome::open(path); }),
              HasSubstr("x.fa.fai:2: lists b with 3 bases, the file has b with 2; the file is cut "
                        "off, or changed since: get it again or delete the index"));
  folder.write("x.fa", ">a\nACGT\nAC\n");
  EXPECT_THAT(message_of<Corruption>([&] { (void)Genome::open(path); }),
              HasSubstr("x.fa.fai: lists 2 sequences, the file has 1"));
}

TEST(Genome, OpensWhatCannotBeIndexed) {
  const ScratchFolder folder;
  const auto path = folder.write("x.fa", ">a\nAC\nACGT\n\nA\n");
  EXPECT_EQ(Genome::open(path).num_bases(), 7U);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "x.fa.fai"));
}

}  // namespace
}  // namespace mantissa::genome
