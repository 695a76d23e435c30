#include "mantissa/report/quantity.h"

#include <cmath>

#include <gtest/gtest.h>

namespace mantissa::report {
namespace {

TEST(Quantity, BytesHaveThreeDigitsAndADecimalPrefix) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(999), "999 B");
  EXPECT_EQ(bytes_text(1000), "1.00 kB");
  EXPECT_EQ(bytes_text(45600), "45.6 kB");
  EXPECT_EQ(bytes_text(999600), "1.00 MB");
  EXPECT_EQ(bytes_text(505952000), "506 MB");
  EXPECT_EQ(bytes_text(int64_t{24} << 30), "25.8 GB");
}

TEST(Quantity, SecondsChooseTheirUnit) {
  EXPECT_EQ(seconds_text(0), "0 s");
  EXPECT_EQ(seconds_text(0.0000421), "42.1 us");
  EXPECT_EQ(seconds_text(0.0999), "99.9 ms");
  EXPECT_EQ(seconds_text(0.9996), "1.00 s");
  EXPECT_EQ(seconds_text(30.8), "30.8 s");
}

TEST(Quantity, DurationsAreShort) {
  EXPECT_EQ(duration_text(0.4), "0s");
  EXPECT_EQ(duration_text(185), "3m05s");
  EXPECT_EQ(duration_text(2 * 3600 + 7 * 60 + 20), "2h07m");
  EXPECT_EQ(duration_text(std::nan("")), "?");
}

TEST(Quantity, Counts) {
  EXPECT_EQ(count_text(950), "950");
  EXPECT_EQ(count_text(12345), "12.3k");
  EXPECT_EQ(count_text(4.56e6), "4.56M");
}

TEST(Quantity, DecimalsAndWhatIsNotKnown) {
  EXPECT_EQ(decimal_text(1.23456, 2), "1.23");
  EXPECT_EQ(decimal_text(12, 0), "12");
  EXPECT_EQ(decimal_text(std::nan(""), 2), "-");
}

TEST(Quantity, ScalesArePowersOfTwoWhereTheyAre) {
  EXPECT_EQ(scale_text(65536), "2^16");
  EXPECT_EQ(scale_text(1), "1");
  EXPECT_EQ(scale_text(0.5), "2^-1");
  EXPECT_EQ(scale_text(1000), "1000");
}

}  // namespace
}  // namespace mantissa::report
