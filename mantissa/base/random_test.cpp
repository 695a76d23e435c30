#include "mantissa/base/random.h"

#include <cmath>

#include <gtest/gtest.h>

namespace mantissa {
namespace {

// The known-answer vectors that the authors of Philox publish with Random123.
TEST(Random, PhiloxMatchesThePublishedVectors) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, ResumesAtAnyPosition) {
  Random whole(7, 3);
  for (int i = 0; i < 13; ++i) {
    whole.next_u32();
  }
  Random resumed(7, 3, whole.position());
  for (int i = 0; i < 9; ++i) {
    EXPECT_EQ(resumed.next_u64(), whole.next_u64());
  }
}

TEST(Random, StreamsAndSeedsDiffer) {
  EXPECT_NE(Random(1, 0).next_u64(), Random(1, 1).next_u64());
  EXPECT_NE(Random(1, 0).next_u64(), Random(2, 0).next_u64());
}

TEST(Random, BelowIsUniformWithinFiveStandardDeviations) {
  Random random(11, 0);
  constexpr int kDraws = 60000;
  std::array<int, 6> counts{};
  for (int i = 0; i < kDraws; ++i) {
    ++counts.at(random.below(6));
  }
  const double sd = std::sqrt(kDraws * (1.0 / 6) * (5.0 / 6));
  for (int count : counts) {
    EXPECT_NEAR(count, kDraws / 6.0, 5 * sd);
  }
}

TEST(Random, NormalHasMeanZeroAndVarianceOneWithinFiveStandardErrors) {
  Random random(12, 0);
  constexpr int kDraws = 100000;
  double sum = 0;
  double squares = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double value = random.normal();
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / kDraws, 0, 5 / std::sqrt(kDraws));
  EXPECT_NEAR(squares / kDraws, 1, 5 * std::sqrt(2.0 / kDraws));
}

}  // namespace
}  // namespace mantissa
