#include "mantissa/train/score_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <gmock/gmock.h>

#include "mantissa/base/error.h"
#include "mantissa/base/faulty_files.h"
#include "mantissa/base/message_of.h"
#include "mantissa/genome/variant_reader.h"
#include "mantissa/train/score_summary.h"
#include "mantissa/train/scored_model_testing.h"
#include "mantissa/train/tiny_run_test.h"

namespace mantissa::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ScoreFileTest : public TinyRunTest {
 protected:
  ScoreFileTest() : model_(config(), kScoredFasta) {
    folder_.write("x.vcf",
                  std::string("##fileformat=VCFv4.2\n##own=\"kept\"\n"
                              "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\tS\n") +
                      kEveryKind);
  }

  ScoreFileOptions options(FileSystem& files = posix_files()) const {
    return {.settings = "weights 1",
            .description = "##M_score=\"x\"",
            .save_every = 4,
            .files = &files};
  }

  bool score(const ScoreFileOptions& options, const char* out = "out.vcf") const {
    return score_file(folder_ / "x.vcf", folder_ / out, model_.variants(), options,
                      [](const std::filesystem::path&) {});
  }

  // The whole, uninterrupted.
  std::string expected() const {
    score(options(), "expected.vcf");
    return folder_.read("expected.vcf");
  }

  bool there(const char* name) const { return std::filesystem::exists(folder_ / name); }

  ScratchFolder folder_;
  ScoredModel model_;
};

TEST_F(ScoreFileTest, KeepsEveryRecordInItsOrderAndTheHeader) {
  EXPECT_TRUE(score(options()));
  genome::VariantReader in(folder_ / "x.vcf");
  genome::VariantReader out(folder_ / "out.vcf");
  EXPECT_EQ(out.header().size(), in.header().size() + 10 + 1);
  EXPECT_EQ(out.header()[1], "##own=\"kept\"");
  EXPECT_EQ(out.header().back(), in.header().back());
  std::string record;
  std::string scored;
  int records = 0;
  for (; in.next(record); ++records) {
    ASSERT_TRUE(out.next(scored));
    EXPECT_EQ(scored, model_.variants().annotate(record, "x"));
  }
  EXPECT_FALSE(out.next(scored));
  EXPECT_EQ(records, kEveryKindRecords);
  EXPECT_FALSE(there("out.vcf.part"));
  EXPECT_FALSE(there("out.vcf.progress"));
  const ScoreSummary summary = summarize_scores(folder_ / "out.vcf", model_.fields(), {});
  EXPECT_EQ(summary.records, static_cast<uint64_t>(kEveryKindRecords));
  EXPECT_EQ(summary.scored_records + summary.part_records + summary.explained_records,
            summary.records);
  EXPECT_EQ(summary.part_records, 1U);
}

TEST_F(ScoreFileTest, WritesBgzip) {
  EXPECT_TRUE(score(options(), "out.vcf.gz"));
  EXPECT_EQ(folder_.read("out.vcf.gz").substr(0, 2), "\x1f\x8b");
  const std::string plain = expected();
  genome::VariantReader out(folder_ / "out.vcf.gz");
  genome::VariantReader same(folder_ / "expected.vcf");
  EXPECT_EQ(out.header(), same.header());
  std::string a;
  std::string b;
  while (same.next(a)) {
    ASSERT_TRUE(out.next(b));
    EXPECT_EQ(a, b);
  }
  EXPECT_FALSE(out.next(b));
}

TEST_F(ScoreFileTest, GoesOnAfterAStop) {
  const std::string whole = expected();
  std::atomic<int> stop{0};
  uint64_t last = 0;
  ScoreFileOptions stopping = options();
  stopping.stop = &stop;
  stopping.progress = [&](uint64_t records) {
    last = records;
    stop = records == 6 || records == 15 ? 15 : 0;
  };
  EXPECT_FALSE(score(stopping));
  EXPECT_EQ(last, 6U);
  EXPECT_FALSE(there("out.vcf"));
  EXPECT_FALSE(score(stopping));
  EXPECT_EQ(last, 15U);  // nothing was done twice: the next was 7
  EXPECT_TRUE(score(stopping));
  EXPECT_EQ(folder_.read("out.vcf"), whole);
}

// Killed at every single call to the system, then repeated: the bytes of one that was not.
TEST_F(ScoreFileTest, GoesOnAfterAKillAnywhere) {
  const std::string whole = expected();
  FaultyFiles counting(posix_files());
  score(options(counting));
  const int64_t calls = counting.num_calls();
  EXPECT_GT(calls, 20);
  for (int64_t at = 0; at < calls; ++at) {
    SCOPED_TRACE(testing::Message() << "call " << at << " of " << calls);
    std::filesystem::remove(folder_ / "out.vcf");
    FaultyFiles files(posix_files(), {.at_call = at, .effect = Fault::Effect::dead});
    EXPECT_THROW(score(options(files)), Error);
    if (there("out.vcf")) {  // renamed, and killed after that
      EXPECT_EQ(folder_.read("out.vcf"), whole);
      std::filesystem::remove(folder_ / "out.vcf.progress");
      continue;
    }
    EXPECT_TRUE(score(options()));
    EXPECT_EQ(folder_.read("out.vcf"), whole);
    EXPECT_FALSE(there("out.vcf.progress"));
  }
}

TEST_F(ScoreFileTest, AFullDiskLeavesNothingUnderTheNameAndIsGoneOnFrom) {
  const std::string whole = expected();
  FaultyFiles counting(posix_files());
  score(options(counting));
  const int64_t calls = counting.num_calls();
  int full = 0;
  for (int64_t at = 0; at < calls; ++at) {
    SCOPED_TRACE(testing::Message() << "call " << at << " of " << calls);
    std::filesystem::remove(folder_ / "out.vcf");
    FaultyFiles files(posix_files(), {.at_call = at, .effect = Fault::Effect::disk_full});
    try {
      score(options(files));
    } catch (const IoError& error) {
      EXPECT_THAT(error.what(), HasSubstr("No space left on device"));
      EXPECT_FALSE(there("out.vcf"));
      EXPECT_TRUE(score(options()));
      ++full;
    }
    EXPECT_EQ(folder_.read("out.vcf"), whole);
  }
  EXPECT_GT(full, 10);
}

TEST_F(ScoreFileTest, DoesNotGoOnWithOtherSettingsOrAnotherInput) {
  std::atomic<int> stop{0};
  ScoreFileOptions stopping = options();
  stopping.stop = &stop;
  stopping.progress = [&](uint64_t records) { stop = records == 6 ? 15 : 0; };
  EXPECT_FALSE(score(stopping));
  ScoreFileOptions other = options();
  other.settings = "weights 2";
  EXPECT_THAT(message_of<InvalidArgument>([&] { score(other); }),
              HasSubstr("was begun with weights 1, this is weights 2; repeat the command that "
                        "began it, or remove out.vcf.part"));
  std::string input = folder_.read("x.vcf");
  const std::string original = input;
  input.replace(input.find("\tsnv\t"), 5, "\tnew\t");
  folder_.write("x.vcf", input);
  EXPECT_THAT(message_of<InvalidArgument>([&] { score(options()); }),
              HasSubstr("was begun with another input, of which 6 records are done"));
  // What has not been read yet may change.
  input = original;
  input.replace(input.find("\ttoo_long\t"), 10, "\tlonger!!\t");
  folder_.write("x.vcf", input);
  EXPECT_TRUE(score(options()));
}

TEST_F(ScoreFileTest, RefusesAnOutputThatIsThereOrOfAnotherFormat) {
  folder_.write("there.vcf", "x");
  EXPECT_THAT(message_of<InvalidArgument>([&] { score(options(), "there.vcf"); }),
              HasSubstr("there.vcf: is there already"));
  EXPECT_EQ(folder_.read("there.vcf"), "x");
  EXPECT_THAT(message_of<InvalidArgument>([&] { score(options(), "out.bcf"); }),
              HasSubstr("it ends in .vcf, .vcf.gz or .vcf.bgz"));
  EXPECT_THAT(message_of<InvalidArgument>([&] { score(options(), "none/out.vcf"); }),
              ::testing::StartsWith("another kind: "));
}

TEST_F(ScoreFileTest, RefusesFieldsThatAreThere) {
  expected();
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                score_file(folder_ / "expected.vcf", folder_ / "out.vcf", model_.variants(),
                           options(), [](const std::filesystem::path&) {});
              }),
              HasSubstr("has a field M_LLR already; choose another --prefix"));
}

TEST_F(ScoreFileTest, KeepsASecondProcessAway) {
  const int fd = ::open((folder_ / "out.vcf.part").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::flock(fd, LOCK_EX | LOCK_NB), 0);
  EXPECT_THAT(message_of<IoError>([&] { score(options()); }),
              HasSubstr("another process writes it"));
  ::close(fd);
  EXPECT_TRUE(score(options()));
}

TEST_F(ScoreFileTest, StopsAtWhatIsNoRecordAndSaysWhere) {
  folder_.write("x.vcf", folder_.read("x.vcf") + "a\tten\t.\tC\tA\t.\t.\t.\n");
  EXPECT_THAT(message_of<Corruption>([&] { score(options()); }),
              AllOf(HasSubstr("x.vcf:30"), HasSubstr("POS \"ten\" is no position")));
  EXPECT_FALSE(there("out.vcf"));
}

TEST_F(ScoreFileTest, KeepsCarriageReturns) {
  folder_.write("x.vcf",
                "##fileformat=VCFv4.2\r\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\r\n"
                "a\t20\t.\tC\tA\t.\t.\t.\r\n");
  EXPECT_TRUE(score(options()));
  const std::string out = folder_.read("out.vcf");
  for (size_t i = 0; i < out.size(); ++i) {
    EXPECT_TRUE(out[i] != '\n' || out[i - 1] == '\r') << i;
  }
}

}  // namespace
}  // namespace mantissa::train
