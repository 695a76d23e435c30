#include "mantissa/numerics/bit_pattern.h"

#include <array>

#include <gtest/gtest.h>

#include "mantissa/base/error.h"

namespace mantissa::numerics {
namespace {

TEST(BitPattern, ConstantsAreThePublishedPatterns) {
  const std::array<uint32_t, 6> largest = {0x7F7FFFFF, 0x7F7FE000, 0x7F7F, 0x7BFF, 0x7E, 0x7B};
  const std::array<uint32_t, 6> nan = {0x7FC00000, 0x7FC00000, 0x7FC0, 0x7E00, 0x7F, 0x7F};
  for (size_t i = 0; i < kFormats.size(); ++i) {
    const Format format = kFormats[i];
    SCOPED_TRACE(to_string(format));
    EXPECT_EQ(max_magnitude(format) << pad_bits(format), largest[i]);
    EXPECT_EQ(nan_pattern(format), nan[i]);
    EXPECT_EQ(pad_bits(format), format == Format::tf32 ? 13 : 0);
  }
}

TEST(BitPattern, ClassifiesBothSidesOfEveryLimit) {
  EXPECT_EQ(classify(Format::fp16, 0x8000), NumberClass::zero);
  EXPECT_EQ(classify(Format::fp16, 0x0001), NumberClass::subnormal);
  EXPECT_EQ(classify(Format::fp16, 0x83FF), NumberClass::subnormal);
  EXPECT_EQ(classify(Format::fp16, 0x0400), NumberClass::normal);
  EXPECT_EQ(classify(Format::fp16, 0x7BFF), NumberClass::normal);
  EXPECT_EQ(classify(Format::fp16, 0xFC00), NumberClass::infinity);
  EXPECT_EQ(classify(Format::fp16, 0x7C01), NumberClass::nan);
  EXPECT_EQ(classify(Format::fp8_e4m3, 0x7E), NumberClass::normal);
  EXPECT_EQ(classify(Format::fp8_e4m3, 0xFF), NumberClass::nan);
  EXPECT_EQ(classify(Format::fp8_e5m2, 0x7C), NumberClass::infinity);
  EXPECT_EQ(classify(Format::fp8_e5m2, 0x7D), NumberClass::nan);
  EXPECT_EQ(classify(Format::tf32, 0x7F802000), NumberClass::nan);
}

TEST(BitPattern, BitsOutsideTheFormatAreAnError) {
  try {
    classify(Format::bf16, 0x13DCD);
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "bit pattern: 0x13dcd does not fit bf16; it has 16 bits");
  }
  try {
    classify(Format::tf32, 0x3F800001);
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "bit pattern: 0x3f800001 is not tf32; its low 13 bits must be zero");
  }
}

}  // namespace
}  // namespace mantissa::numerics
