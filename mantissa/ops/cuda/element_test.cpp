// What the kernels of devices do to one element, beside what the CPU does.
#include "mantissa/ops/cuda/element.h"

#include <bit>
#include <cmath>

#include <gtest/gtest.h>

#include "mantissa/base/random.h"
#include "mantissa/numerics/rounding.h"
#include "mantissa/ops/split_weight.h"

namespace mantissa::ops::cuda {
namespace {

using numerics::Format;
using numerics::Rounding;

constexpr int kDraws = 300'000;

Format format_of(Storage storage) { return storage == Storage::bf16 ? Format::bf16 : Format::fp16; }

TEST(DeviceElement, DecodesEveryPatternAsTheCpuDoes) {
  for (const Storage storage : {Storage::bf16, Storage::fp16}) {
    for (uint32_t pattern = 0; pattern < 0x10000; ++pattern) {
      ASSERT_EQ(bits_of(decode(storage, static_cast<uint16_t>(pattern))),
                std::bit_cast<uint32_t>(numerics::decode(format_of(storage), pattern)))
          << pattern;
    }
  }
}

// Numbers of any pattern, which are seldom near FP16's range, and such that are.
TEST(DeviceElement, EncodesAsTheCpuDoes) {
  Random random(41, 0);
  for (int draw = 0; draw < kDraws; ++draw) {
    uint32_t bits = random.next_u32();
    if (draw % 2 == 0) {  // exponents of -30 to 17, and ties
      bits = (bits & 0x807FFFFFU) | (97 + random.next_u32() % 48) << 23;
      bits &= draw % 4 == 0 ? 0xFFFFF000U : 0xFFFFFFFFU;
    }
    const auto value = std::bit_cast<float>(bits);
    const uint32_t words = draw % 3 == 0 ? 0xFFFFFFFFU : random.next_u32();
    for (const Storage storage : {Storage::bf16, Storage::fp16}) {
      const Format format = format_of(storage);
      ASSERT_EQ(encode(storage, value), numerics::encode(format, value)) << value;
      ASSERT_EQ(encode(storage, value, true, words),
                numerics::encode(format, value, Rounding::stochastic, words))
          << value << " " << words;
    }
  }
}

TEST(DeviceElement, EncodesTheEdgesOfFormats) {
  for (const uint32_t bits :
       {0x00000000U, 0x80000000U, 0x00000001U, 0x007FFFFFU, 0x00800000U, 0x7F7FFFFFU, 0xFF7FFFFFU,
        0x7F800000U, 0xFF800000U, 0x7F800001U, 0xFFC00000U, 0x7FFFFFFFU, 0x477FE000U, 0x477FEFFFU,
        0x477FF000U, 0x33000000U, 0x33000001U, 0x33800000U, 0x387FC000U, 0x387FE000U, 0x38800000U,
        0x3F808000U, 0x3F818000U, 0x7F7F8000U, 0x7F7F7FFFU}) {
    const auto value = std::bit_cast<float>(bits);
    for (const Storage storage : {Storage::bf16, Storage::fp16}) {
      const Format format = format_of(storage);
      EXPECT_EQ(encode(storage, value), numerics::encode(format, value)) << bits;
      for (const uint32_t words : {0U, 1U, 0x7FFFFFFFU, 0x80000000U, 0xFFFFFFFFU}) {
        EXPECT_EQ(encode(storage, value, true, words),
                  numerics::encode(format, value, Rounding::stochastic, words))
            << bits << " " << words;
      }
    }
  }
}

TEST(DeviceElement, DrawsTheWordsOfTheCpusStreams) {
  for (const uint64_t seed : {uint64_t{0}, uint64_t{7}, uint64_t{0x123456789ABCDEF0}}) {
    for (const uint64_t stream : {uint64_t{1}, (uint64_t{2} << 62) + (uint64_t{9} << 40) + 5}) {
      Random random(seed, stream);
      for (uint64_t index = 0; index < 5; ++index) {
        for (const uint32_t word : random_words(seed, stream, index).words) {
          EXPECT_EQ(word, random.next_u32());
        }
      }
    }
  }
}

TEST(DeviceElement, SplitsAsTheCpuDoes) {
  Random random(42, 0);
  for (int draw = 0; draw < kDraws; ++draw) {
    const auto value = std::bit_cast<float>(random.next_u32());
    const SplitHalves halves = split(value);
    const SplitWeight expected = split_weight(value);
    ASSERT_EQ(halves.model, expected.model);
    ASSERT_EQ(halves.rest, expected.rest);
    ASSERT_EQ(bits_of(join(halves.model, halves.rest)),
              std::bit_cast<uint32_t>(join_weight(expected)));
  }
}

}  // namespace
}  // namespace mantissa::ops::cuda
