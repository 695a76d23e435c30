#include "mantissa/data/permutation.h"

#include <array>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "mantissa/base/error.h"

namespace mantissa::data {
namespace {

std::vector<uint64_t> order_of(const Permutation& permutation) {
  std::vector<uint64_t> order;
  for (uint64_t i = 0; i < permutation.size(); ++i) {
    order.push_back(permutation(i));
  }
  return order;
}

TEST(Permutation, HasEveryNumberOnceForAnySize) {
  for (uint64_t size = 1; size <= 300; ++size) {
    std::vector<int> times(size);
    for (const uint64_t value : order_of(Permutation(size, 7, 2))) {
      ASSERT_LT(value, size);
      ++times[value];
    }
    ASSERT_EQ(times, std::vector<int>(size, 1)) << size;
  }
}

TEST(Permutation, IsAFunctionOfSeedAndNumber) {
  EXPECT_EQ(order_of({100, 7, 2}), order_of({100, 7, 2}));
  EXPECT_NE(order_of({100, 7, 2}), order_of({100, 7, 3}));
  EXPECT_NE(order_of({100, 7, 2}), order_of({100, 8, 2}));
}

TEST(Permutation, ReachesSizesBeyond32Bits) {
  const uint64_t size = (uint64_t{1} << 40) + 12345;
  const Permutation permutation(size, 1, 0);
  EXPECT_LT(permutation(size - 1), size);
  EXPECT_NE(permutation(0), permutation(uint64_t{1} << 32));
}

// Where one position lands is uniform over numbers: each cell of a table of counts has the
// binomial's mean and deviation.
TEST(Permutation, IsUniformWithinFiveStandardDeviations) {
  constexpr uint64_t kSize = 6;
  constexpr uint64_t kOrders = 30000;
  std::array<std::array<int, kSize>, kSize> counts{};
  for (uint64_t number = 0; number < kOrders; ++number) {
    const Permutation permutation(kSize, 5, number);
    for (uint64_t i = 0; i < kSize; ++i) {
      ++counts.at(i).at(permutation(i));
    }
  }
  const double p = 1.0 / kSize;
  const double sd = std::sqrt(kOrders * p * (1 - p));
  for (const auto& row : counts) {
    for (const int count : row) {
      EXPECT_NEAR(count, kOrders * p, 5 * sd);
    }
  }
}

TEST(Permutation, RefusesNothingToOrder) {
  try {
    const Permutation permutation(0, 1, 1);
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "permutation: size 0; valid: 1 or more");
  }
}

}  // namespace
}  // namespace mantissa::data
