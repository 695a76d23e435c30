#include <bit>
#include <cmath>
#include <limits>

#include <c10/util/BFloat16.h>
#include <c10/util/Float8_e4m3fn.h>
#include <c10/util/Float8_e5m2.h>
#include <c10/util/Half.h>
#include <gtest/gtest.h>

#include "mantissa/numerics/bit_pattern.h"
#include "mantissa/numerics/boundary_values.h"
#include "mantissa/numerics/format.h"
#include "mantissa/numerics/rounding.h"

namespace mantissa::tensor {
namespace {

using numerics::Format;
using numerics::Overflow;
using numerics::Rounding;

// All patterns. A NaN need only be NaN: which one depends on the instructions that LibTorch was
// compiled with.
template <typename C10>
void expect_same_values(Format format) {
  for (uint32_t pattern = 0; pattern < 1U << numerics::info(format).storage_bits; ++pattern) {
    const float ours = numerics::decode(format, pattern);
    const float theirs = C10(static_cast<decltype(C10::x)>(pattern), C10::from_bits());
    ASSERT_EQ(std::isnan(ours), std::isnan(theirs)) << pattern;
    if (!std::isnan(ours)) {
      ASSERT_EQ(std::bit_cast<uint32_t>(ours), std::bit_cast<uint32_t>(theirs)) << pattern;
    }
  }
}

template <typename C10>
void expect_same_patterns(Format format, Overflow overflow) {
  for (float value : numerics::boundary_values(format)) {
    const uint32_t ours = numerics::encode(format, value, Rounding::nearest_even, 0, overflow);
    const C10 theirs(value);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(static_cast<float>(theirs)));
      ASSERT_EQ(numerics::classify(format, ours), numerics::NumberClass::nan);
    } else {
      ASSERT_EQ(ours, theirs.x) << std::hexfloat << value;
    }
  }
}

TEST(FormatAgreement, Bf16IsThatOfC10) {
  expect_same_values<c10::BFloat16>(Format::bf16);
  expect_same_patterns<c10::BFloat16>(Format::bf16, Overflow::ieee);
  EXPECT_EQ(c10::BFloat16(std::numeric_limits<float>::quiet_NaN()).x,
            numerics::nan_pattern(Format::bf16));
}

TEST(FormatAgreement, Fp16IsThatOfC10) {
  expect_same_values<c10::Half>(Format::fp16);
  expect_same_patterns<c10::Half>(Format::fp16, Overflow::ieee);
}

TEST(FormatAgreement, Fp8E5m2IsThatOfC10) {
  expect_same_values<c10::Float8_e5m2>(Format::fp8_e5m2);
  expect_same_patterns<c10::Float8_e5m2>(Format::fp8_e5m2, Overflow::ieee);
}

// LibTorch 2.13 saturates, older ones give NaN; both are modes of the OCP specification.
TEST(FormatAgreement, Fp8E4m3IsThatOfC10InOneOfTheOverflowModes) {
  expect_same_values<c10::Float8_e4m3fn>(Format::fp8_e4m3);
  const bool saturates = !std::isnan(static_cast<float>(c10::Float8_e4m3fn(1e6F)));
  expect_same_patterns<c10::Float8_e4m3fn>(Format::fp8_e4m3,
                                           saturates ? Overflow::saturate : Overflow::ieee);
}

}  // namespace
}  // namespace mantissa::tensor
