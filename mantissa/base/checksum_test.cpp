#include "mantissa/base/checksum.h"

#include <string>

#include <gtest/gtest.h>

namespace mantissa {
namespace {

// The value of the empty input in the test of xxHash itself.
TEST(Xxh3, AgreesWithThePublishedValues) {
  EXPECT_EQ(xxh3(""), 0x2D06800538D394C2U);
  EXPECT_EQ(hex(xxh3("")), "2d06800538d394c2");
}

TEST(Xxh3, PiecesGiveTheValueOfTheWhole) {
  std::string bytes;
  for (int i = 0; i < 5000; ++i) {
    bytes += static_cast<char>(i * 37 % 251);
  }
  for (const size_t piece : {1U, 3U, 64U, 1024U, 5000U}) {
    Xxh3 hash;
    for (size_t begin = 0; begin < bytes.size(); begin += piece) {
      hash.update(bytes.data() + begin, std::min(piece, bytes.size() - begin));
      (void)hash.value();  // asking does not disturb
    }
    EXPECT_EQ(hash.value(), xxh3(bytes)) << "pieces of " << piece;
  }
}

TEST(Xxh3, HexKeepsLeadingZeros) { EXPECT_EQ(hex(0x1F), "000000000000001f"); }

// RFC 3720, appendix B.4, and the check value of the CRC catalogue.
TEST(Crc32c, AgreesWithRfc3720) {
  std::string ascending;
  std::string descending;
  for (int i = 0; i < 32; ++i) {
    ascending += static_cast<char>(i);
    descending += static_cast<char>(31 - i);
  }
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43U);
  EXPECT_EQ(crc32c(ascending), 0x46DD794EU);
  EXPECT_EQ(crc32c(descending), 0x113FDB5CU);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(""), 0U);
}

}  // namespace
}  // namespace mantissa
