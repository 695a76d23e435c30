#include "mantissa/monitor/roofline.h"

#include <cmath>

#include <gtest/gtest.h>

#include "mantissa/base/error.h"

namespace mantissa::monitor {
namespace {

using numerics::Format;

TEST(Roofline, AnOperationTakesTheLongerOfItsProductsAndItsBytes) {
  const Roofline roofline{{{Format::fp32, 100}, {Format::bf16, 400}}, 10};
  EXPECT_EQ(roofline.least_s(Format::fp32, 1000, 50), 10);
  EXPECT_EQ(roofline.least_s(Format::bf16, 1000, 50), 5);
  EXPECT_FALSE(roofline.is_memory_bound(Format::fp32, 1000, 50));
  EXPECT_TRUE(roofline.is_memory_bound(Format::bf16, 1000, 50)) << "2.5 s beside 5 s";
  EXPECT_TRUE(roofline.is_memory_bound(Format::fp32, 0, 1));
}

TEST(Roofline, AFormatThatWasNotMeasuredIsNamed) {
  const Roofline roofline{{{Format::fp32, 100}}, 10};
  try {
    (void)roofline.least_s(Format::fp16, 1, 1);
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "roofline: the rate of fp16 was not measured; name the format to "
                 "measure_roofline");
  }
}

TEST(Roofline, EachFormatHasARate) {
  const Roofline roofline = measure_roofline({Format::fp32});
  ASSERT_EQ(roofline.flops.size(), 1U);
  EXPECT_GT(roofline.flops.at(Format::fp32), 0);
  EXPECT_TRUE(std::isfinite(roofline.flops.at(Format::fp32)));
  EXPECT_GT(roofline.copy_bytes, 0);
  EXPECT_THROW((void)measure_roofline({Format::fp8_e4m3}), InvalidArgument);
}

}  // namespace
}  // namespace mantissa::monitor
