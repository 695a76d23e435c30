#include "mantissa/genome/fasta.h"

#include <sys/stat.h>

#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <htslib/bgzf.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/base/random.h"
#include "mantissa/base/scratch_folder.h"

namespace mantissa::genome {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

using Records = std::vector<std::pair<std::string, std::string>>;

class Collector : public FastaSink {
 public:
  void begin_record(std::string_view name) override { records.emplace_back(name, ""); }
  void letters(std::span<const uint8_t> letters) override {
    records.back().second.append(letters.begin(), letters.end());
  }
  Records records;
};

Records parse(std::string_view text) {
  Collector collector;
  parse_fasta(text, "x.fa", collector);
  return collector.records;
}

Records read(const std::filesystem::path& path) {
  Collector collector;
  read_fasta(path, collector);
  return collector.records;
}

std::string parse_error(std::string_view text) {
  return message_of<Corruption>([&] { parse(text); });
}

// `mode` is "w" for bgzip, "wg" for plain gzip.
void write_compressed(const std::filesystem::path& path, std::string_view text, const char* mode) {
  BGZF* file = bgzf_open(path.c_str(), mode);
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(bgzf_write(file, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  ASSERT_EQ(bgzf_close(file), 0);
}

// More than one bgzip block, and letters that do not compress away.
std::string long_fasta() {
  Random random(5, 0);
  std::string text = ">long\n";
  for (int line = 0; line < 4000; ++line) {
    for (int i = 0; i < 60; ++i) {
      text += "ACGT"[random.below(4)];
    }
    text += '\n';
  }
  return text;
}

TEST(Fasta, ReadsWrappedAndUnwrappedLines) {
  EXPECT_THAT(parse(">a first\nACGT\nAC\n>b\tsecond\nGGGGGGGG\n"),
              ElementsAre(Pair("a", "ACGTAC"), Pair("b", "GGGGGGGG")));
}

TEST(Fasta, ReadsCrLfBlankLinesAndBlanks) {
  EXPECT_THAT(parse("\r\n \n>a\r\nAC GT\t\r\n\r\nAC\r\n"), ElementsAre(Pair("a", "ACGTAC")));
}

TEST(Fasta, NeedsNoFinalNewline) {
  EXPECT_THAT(parse(">a\nACGT"), ElementsAre(Pair("a", "ACGT")));
  EXPECT_THAT(parse(">a\nACGT\r"), ElementsAre(Pair("a", "ACGT")));
  EXPECT_THAT(parse(">a"), ElementsAre(Pair("a", "")));
}

TEST(Fasta, KeepsCaseAndIupacCodes) {
  EXPECT_THAT(parse(">a\nacgtnRYSWKMBDHVN\n"), ElementsAre(Pair("a", "acgtnRYSWKMBDHVN")));
}

TEST(Fasta, ReadsUAsTAndMarksOfMissingBasesAsN) {
  EXPECT_THAT(parse(">a\nUuX-*x\n"), ElementsAre(Pair("a", "TtNNNn")));
}

TEST(Fasta, KeepsEmptyRecords) {
  EXPECT_THAT(parse(">a\n>b\nA\n>c\n\n"),
              ElementsAre(Pair("a", ""), Pair("b", "A"), Pair("c", "")));
}

TEST(Fasta, NamesTheLinesOfADuplicateName) {
  EXPECT_EQ(
      parse_error(">a\nAC\n>b\nG\n>a more\nT\n"),
      "fasta x.fa:5: the name \"a\" was used on line 1; give each sequence a name of its own");
}

TEST(Fasta, RefusesANamelessSequence) {
  EXPECT_EQ(parse_error(">a\nA\n> a\nAC\n"),
            "fasta x.fa:3: a sequence without a name; write \">name\"");
  EXPECT_EQ(parse_error(">\r\nAC\n"), "fasta x.fa:1: a sequence without a name; write \">name\"");
}

TEST(Fasta, RefusesTextBeforeTheFirstName) {
  EXPECT_EQ(parse_error("\nACGT\n>a\nAC\n"),
            "fasta x.fa:2: text, starting with \"A\", before the first \">\"; a FASTA file starts "
            "with a line \">name\"");
  EXPECT_EQ(parse_error("  ACGT\n>a\nAC\n"),
            "fasta x.fa:1: text before the first \">\"; a FASTA file starts with a line \">name\"");
  EXPECT_THAT(parse_error("@read\nACGT\n+\nIIII\n"), HasSubstr("this looks like FASTQ"));
}

TEST(Fasta, NamesTheByteLineAndColumnOfWhatIsNoNucleotide) {
  EXPECT_EQ(parse_error(">a\nACGT\nACEF\n"),
            "fasta x.fa:3: \"E\" at column 3 is no nucleotide; valid: ACGTU, the IUPAC codes "
            "RYSWKMBDHVN, and X - * for N");
  EXPECT_THAT(parse_error(std::string(">a\nAC\0GT\n", 9)), HasSubstr(":2: byte 0x00 at column 3"));
  EXPECT_THAT(parse_error(">a\nAC>b\n"), HasSubstr("\">\" at column 3"));
}

TEST(Fasta, RefusesACarriageReturnWithinALine) {
  EXPECT_EQ(parse_error(">a\nAC\rGT\n"),
            "fasta x.fa:2: a carriage return at column 3 that does not end the line; lines end in "
            "LF or CRLF");
}

TEST(Fasta, RefusesFilesWithoutASequence) {
  const std::string expected =
      "fasta x.fa: holds no sequence; a FASTA file has a line \">name\" before each sequence";
  EXPECT_EQ(parse_error(""), expected);
  EXPECT_EQ(parse_error("\n \r\n"), expected);
}

TEST(Fasta, RefusesBinaryBytesInANameAndAnEndlessName) {
  EXPECT_THAT(parse_error(">a\x01z\nAC\n"), HasSubstr("x.fa:1: byte 0x01 in the name"));
  EXPECT_THAT(parse_error(">" + std::string(70000, 'a')),
              HasSubstr("the line of a name is longer than 65536 bytes"));
}

TEST(Fasta, ReadsPlainGzipAndBgzipAlike) {
  const ScratchFolder folder;
  const std::string text = long_fasta();
  const Records expected = parse(text);
  ASSERT_EQ(expected[0].second.size(), 240000U);
  folder.write("x.fa", text);
  write_compressed(folder.path() / "x.fa.gz", text, "wg");
  write_compressed(folder.path() / "x.fa.bgz", text, "w");
  EXPECT_EQ(read(folder.path() / "x.fa"), expected);
  EXPECT_EQ(read(folder.path() / "x.fa.gz"), expected);
  EXPECT_EQ(read(folder.path() / "x.fa.bgz"), expected);
}

// Reading may cut the text anywhere; the parser must not notice. The reader's pieces are 256 KiB.
TEST(Fasta, GivesTheSameWhereverTheTextIsCut) {
  const ScratchFolder folder;
  const std::string tail = "AC\r\n\r\n>b two\r\nGGRn\r\n>c\r\n";
  for (size_t cut = 0; cut < tail.size(); ++cut) {
    const size_t line = (size_t{1} << 18) - 4 - cut;
    const std::string text = ">a\n" + std::string(line, 'A') + "\n" + tail;
    EXPECT_EQ(read(folder.write("x.fa", text)), parse(text)) << cut;
  }
}

TEST(Fasta, RefusesCutOffAndDamagedCompressedFiles) {
  const ScratchFolder folder;
  const std::string text = long_fasta();
  write_compressed(folder.path() / "x.gz", text, "wg");
  write_compressed(folder.path() / "x.bgz", text, "w");
  const std::string gzip = folder.read("x.gz");
  const std::string bgzip = folder.read("x.bgz");
  const auto error = [&](const std::string& name, const std::string& bytes) {
    const auto path = folder.write(name, bytes);
    return message_of<Corruption>([&] { read(path); });
  };
  for (size_t tenth = 1; tenth < 10; ++tenth) {
    EXPECT_THAT(error("cut.gz", gzip.substr(0, gzip.size() * tenth / 10)), HasSubstr("cut off"));
    EXPECT_THAT(error("cut.bgz", bgzip.substr(0, bgzip.size() * tenth / 10)), HasSubstr("cut off"));
  }
  EXPECT_THAT(error("cut.gz", gzip.substr(0, gzip.size() - 1)), HasSubstr("cut off"));
  constexpr size_t kEndMarkBytes = 28;
  EXPECT_THAT(error("end.bgz", bgzip.substr(0, bgzip.size() - kEndMarkBytes)),
              HasSubstr("the end mark of a bgzip file is missing"));
  std::string damaged = bgzip;
  damaged[bgzip.size() / 2] ^= 0x40;
  EXPECT_THAT(error("damaged.bgz", damaged), HasSubstr("damaged"));
  EXPECT_THAT(error("begun.gz", gzip.substr(0, 9)), HasSubstr("a gzip file that is cut off"));
  damaged = gzip;
  damaged[gzip.size() / 2] ^= 0x40;
  EXPECT_THAT(error("damaged.gz", damaged), HasSubstr("damaged"));
}

TEST(Fasta, NamesAMissingFileAndAFolder) {
  const ScratchFolder folder;
  const auto missing = folder.path() / "none.fa";
  EXPECT_EQ(message_of<IoError>([&] { read(missing); }),
            "fasta " + missing.string() + ": no such file; check the path");
  EXPECT_EQ(message_of<IoError>([&] { read(folder.path()); }),
            "fasta " + folder.path().string() + ": is a folder; name a FASTA file");
}

TEST(Fasta, DoesNotWaitForTheWriterOfAPipe) {
  const ScratchFolder folder;
  const auto pipe = folder.path() / "pipe.fa";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(
      message_of<IoError>([&] { read(pipe); }),
      "fasta " + pipe.string() + ": is a pipe or a device; write the sequences to a file first");
}

TEST(Fasta, RefusesAnEmptyFile) {
  const ScratchFolder folder;
  const auto path = folder.write("empty.fa", "");
  EXPECT_THAT(message_of<Corruption>([&] { read(path); }), HasSubstr("holds no sequence"));
}

// Random bytes, and FASTA with random bytes put in: an Error or records, never anything else.
TEST(Fasta, SurvivesAnyBytes) {
  const ScratchFolder folder;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed, 0);
    std::string text = seed % 2 == 0 ? "" : ">a x\nACGTNNNN\nACG\n>b\r\nAC\r\n";
    const uint64_t changes = seed % 2 == 0 ? random.below(300) : 1 + random.below(3);
    for (uint64_t i = 0; i < changes; ++i) {
      text.insert(random.below(text.size() + 1), 1, static_cast<char>(random.below(256)));
    }
    const auto either = [](auto call) {
      try {
        for (const auto& [name, letters] : call()) {
          EXPECT_FALSE(name.empty());
          EXPECT_EQ(letters.find_first_not_of("ACGTRYSWKMBDHVNacgtryswkmbdhvn"), std::string::npos);
        }
      } catch (const Error&) {
      }
    };
    either([&] { return parse(text); });
    if (seed % 10 < 2) {
      const auto path = folder.write("fuzz.fa", (seed % 10 == 0 ? "\x1f\x8b" : "") + text);
      either([&] { return read(path); });
    }
  }
}

}  // namespace
}  // namespace mantissa::genome
