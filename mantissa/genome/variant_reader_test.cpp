#include "mantissa/genome/variant_reader.h"

#include <gmock/gmock.h>
#include <htslib/vcf.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/base/random.h"
#include "mantissa/base/scratch_folder.h"

namespace mantissa::genome {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const char* const kHeader =
    "##fileformat=VCFv4.2\n"
    "##contig=<ID=1,length=100>\n"
    "##INFO=<ID=AF,Number=A,Type=Float,Description=\"x\">\n"
    "##FILTER=<ID=PASS,Description=\"All filters passed\">\n"
    "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n";

const char* const kRecords =
    "1\t9\trs1\tA\tC,<DEL>\t29.5\tPASS\tAF=0.5,0.25\n"
    "1\t3\t.\tA\tG\t.\t.\t.\n";

std::vector<std::string> records_of(const std::filesystem::path& path) {
  VariantReader reader(path);
  std::vector<std::string> records;
  for (std::string line; reader.next(line);) {
    records.push_back(line);
  }
  return records;
}

// Through htslib, which has the formats by itself. `mode`: "wz" VCF by bgzip, "wb" BCF.
void convert(const std::filesystem::path& from, const std::filesystem::path& to, const char* mode) {
  htsFile* in = hts_open(from.c_str(), "r");
  htsFile* out = hts_open(to.c_str(), mode);
  ASSERT_TRUE(in != nullptr && out != nullptr);
  bcf_hdr_t* header = bcf_hdr_read(in);
  ASSERT_EQ(bcf_hdr_write(out, header), 0);
  bcf1_t* record = bcf_init();
  while (bcf_read(in, header, record) == 0) {
    ASSERT_EQ(bcf_write(out, header, record), 0);
  }
  bcf_destroy(record);
  bcf_hdr_destroy(header);
  hts_close(in);
  ASSERT_EQ(hts_close(out), 0);
}

TEST(VariantReader, ReadsVcfBgzipAndBcfAlikeAndInTheirOrder) {
  const ScratchFolder folder;
  const auto plain = folder.write("x.vcf", std::string(kHeader) + kRecords);
  convert(plain, folder / "x.vcf.gz", "wz");
  convert(plain, folder / "x.bcf", "wb");
  convert(plain, folder / "raw.bcf", "wbu");
  for (const char* name : {"x.vcf", "x.vcf.gz", "x.bcf", "raw.bcf"}) {
    EXPECT_THAT(
        records_of(folder / name),
        ElementsAre("1\t9\trs1\tA\tC,<DEL>\t29.5\tPASS\tAF=0.5,0.25", "1\t3\t.\tA\tG\t.\t.\t."))
        << name;
    const VariantReader reader(folder / name);
    EXPECT_EQ(reader.header().front(), "##fileformat=VCFv4.2");
    EXPECT_EQ(reader.header().back(), "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO");
    EXPECT_THAT(reader.header(), ::testing::Contains("##contig=<ID=1,length=100>"));
  }
}

TEST(VariantReader, KeepsTheBytesOfAVcfLine) {
  const ScratchFolder folder;
  // What htslib would write in another way, or refuse: digits of numbers, names without a header.
  const std::string odd = "zz\t3\t.\ta\tg\t1234567.890\tnew\tAF=0.1000000001;OWN=x y\tGT:AD\t0/1:1";
  EXPECT_THAT(records_of(folder.write("x.vcf", kHeader + odd + "\n\n" + odd + "\r\n")),
              ElementsAre(odd, odd + "\r"));
}

TEST(VariantReader, NamesThePlace) {
  const ScratchFolder folder;
  const auto path = folder.write("x.vcf", std::string(kHeader) + kRecords);
  VariantReader reader(path);
  std::string line;
  ASSERT_TRUE(reader.next(line));
  EXPECT_EQ(reader.where(), "vcf " + path.string() + ":6");
  convert(path, folder / "x.bcf", "wb");
  VariantReader binary(folder / "x.bcf");
  ASSERT_TRUE(binary.next(line));
  EXPECT_EQ(binary.where(), "bcf " + (folder / "x.bcf").string() + ": record 1");
}

TEST(VariantReader, RefusesWhatIsNoVcf) {
  const ScratchFolder folder;
  const auto error = [&](std::string_view text) {
    const auto path = folder.write("x", text);
    return message_of<Corruption>([&] { records_of(path); });
  };
  EXPECT_THAT(error(""), HasSubstr("is empty"));
  EXPECT_THAT(error(">chr1\nACGT\n"), HasSubstr("x:1: does not begin with \"##fileformat=VCF\""));
  EXPECT_THAT(error("##fileformat=VCFv4.2\n1\t3\t.\tA\tG\t.\t.\t.\n"),
              HasSubstr("x:2: a record before the line \"#CHROM\""));
  EXPECT_THAT(error("##fileformat=VCFv4.2\n##x=y\n"), HasSubstr("has no line \"#CHROM\""));
  EXPECT_THAT(error("##fileformat=VCFv4.2\n#CHROM POS ID\n"),
              HasSubstr("x:2: the line \"#CHROM\" does not name the eight columns"));
}

// A cut or damaged BCF file: an Error or records, never anything else.
TEST(VariantReader, SurvivesADamagedBcf) {
  const ScratchFolder folder;
  const auto plain = folder.write("x.vcf", std::string(kHeader) + kRecords);
  convert(plain, folder / "x.bcf", "wbu");
  const std::string bytes = folder.read("x.bcf");
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed, 0);
    std::string damaged = bytes;
    if (seed % 2 == 0) {
      damaged.resize(random.below(bytes.size()));
    } else {
      damaged[random.below(bytes.size())] = static_cast<char>(random.below(256));
    }
    try {
      records_of(folder.write("damaged.bcf", damaged));
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace mantissa::genome
