#include "mantissa/genome/fasta_index.h"

#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <htslib/bgzf.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/base/scratch_folder.h"

namespace mantissa::genome {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kText = ">a first\nACGT\nAC\n>b\r\nGGG\r\n";

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  return names;
}

TEST(FastaIndex, IsMadeWhenMissingAndLeftAloneWhenThere) {
  const ScratchFolder folder;
  const auto path = folder.write("x.fa", kText);
  EXPECT_EQ(ensure_fasta_index(path), IndexState::made);
  EXPECT_EQ(folder.read("x.fa.fai"), "a\t6\t9\t4\t5\nb\t3\t21\t3\t5\n");
  EXPECT_EQ(ensure_fasta_index(path), IndexState::present);
  EXPECT_THAT(names_in(folder.path()), testing::UnorderedElementsAre("x.fa", "x.fa.fai"));
}

TEST(FastaIndex, OfBgzipHasItsBlocksToo) {
  const ScratchFolder folder;
  const auto path = folder.path() / "x.fa.gz";
  BGZF* file = bgzf_open(path.c_str(), "w");
  ASSERT_EQ(bgzf_write(file, kText.data(), kText.size()), static_cast<ssize_t>(kText.size()));
  ASSERT_EQ(bgzf_close(file), 0);
  EXPECT_EQ(ensure_fasta_index(path), IndexState::made);
  EXPECT_THAT(names_in(folder.path()),
              testing::UnorderedElementsAre("x.fa.gz", "x.fa.gz.fai", "x.fa.gz.gzi"));
  EXPECT_EQ(ensure_fasta_index(path), IndexState::present);
}

TEST(FastaIndex, IsNotPossibleWithUnequalLinesAndLeavesNothingBehind) {
  const ScratchFolder folder;
  const auto path = folder.write("x.fa", ">a\nAC\nACGT\nA\n");
  EXPECT_EQ(ensure_fasta_index(path), IndexState::not_possible);
  EXPECT_EQ(names_in(folder.path()).size(), 1U);
  EXPECT_EQ(ensure_fasta_index(folder.path() / "none.fa"), IndexState::not_possible);
}

TEST(FastaIndex, IsDoneWithoutWhereTheFolderIsNotWritable) {
  if (::geteuid() == 0) {
    GTEST_SKIP() << "root may write everywhere";
  }
  const ScratchFolder folder;
  const auto path = folder.write("x.fa", kText);
  ASSERT_EQ(::chmod(folder.path().c_str(), 0500), 0);
  EXPECT_EQ(ensure_fasta_index(path), IndexState::not_writable);
  ASSERT_EQ(::chmod(folder.path().c_str(), 0700), 0);
}

TEST(FastaIndex, ReadsNamesAndLengths) {
  const ScratchFolder folder;
  const auto contigs = read_fasta_index(folder.write("x.fai", "a\t6\t9\t4\t5\nb\t3\t21\t3\t5\n"));
  ASSERT_EQ(contigs.size(), 2U);
  EXPECT_EQ(contigs[1].name, "b");
  EXPECT_EQ(contigs[1].length, 3U);
}

TEST(FastaIndex, NamesFileAndLineOfWhatIsMalformed) {
  const ScratchFolder folder;
  const auto error = [&](std::string_view text) {
    const auto path = folder.write("x.fai", text);
    return message_of<Corruption>([&] { read_fasta_index(path); });
  };
  EXPECT_THAT(error("a\t6\t9\t4\t5\nb\t3\n"),
              HasSubstr("x.fai:2: 2 columns instead of 5; delete the index, it is made again"));
  EXPECT_THAT(error("a\t6x\t9\t4\t5\n"), HasSubstr("x.fai:1: \"6x\" is no number"));
  EXPECT_THAT(error("a\t6\t9\t4\t5\t1\n"), HasSubstr("x.fai:1: more than 5 columns"));
  EXPECT_THAT(message_of<IoError>([&] { read_fasta_index(folder.path() / "none.fai"); }),
              HasSubstr("none.fai: cannot be opened"));
}

}  // namespace
}  // namespace mantissa::genome
