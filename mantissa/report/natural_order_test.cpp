#include "mantissa/report/natural_order.h"

#include <algorithm>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mantissa::report {
namespace {

TEST(NaturalOrder, NumbersCountByTheirValue) {
  std::vector<std::string> names = {"b.10.w", "b.9.w", "a", "b.010.w", "b.9", "b.", "", "b.1.w"};
  std::sort(names.begin(), names.end(), comes_before);
  EXPECT_THAT(names,
              ::testing::ElementsAre("", "a", "b.", "b.1.w", "b.9", "b.9.w", "b.010.w", "b.10.w"));
}

// std::sort may do anything with one that is none.
TEST(NaturalOrder, IsAStrictWeakOrder) {
  const std::vector<std::string> names = {"",     "0",     "00",     "0a",    "a0", "a",
                                          "1",    "01",    "10",     "9",     "1.", "1-1",
                                          "1-01", "x12y3", "x12y30", "x012y3"};
  for (const std::string& a : names) {
    EXPECT_FALSE(comes_before(a, a)) << a;
    for (const std::string& b : names) {
      EXPECT_FALSE(comes_before(a, b) && comes_before(b, a)) << a << " " << b;
      for (const std::string& c : names) {
        EXPECT_TRUE(!comes_before(a, b) || !comes_before(b, c) || comes_before(a, c))
            << a << " " << b << " " << c;
      }
    }
  }
}

}  // namespace
}  // namespace mantissa::report
