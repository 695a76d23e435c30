#include "mantissa/tensor/dtype.h"

#include <gtest/gtest.h>

#include "mantissa/base/error.h"

namespace mantissa::tensor {
namespace {

using numerics::Format;

TEST(Dtype, EveryFormatRoundTripsButTf32WhichIsStoredAsFp32) {
  for (Format format : numerics::kFormats) {
    EXPECT_EQ(format_of(dtype_of(format)), format == Format::tf32 ? Format::fp32 : format);
  }
}

TEST(Dtype, StorageHasTheWidthOfTheFormat) {
  for (Format format : numerics::kFormats) {
    EXPECT_EQ(c10::elementSize(dtype_of(format)) * 8, numerics::info(format).storage_bits);
  }
}

TEST(Dtype, RefusesWhatIsNotATrainingFormat) {
  EXPECT_THROW(format_of(at::kDouble), InvalidArgument);
  EXPECT_THROW(format_of(at::kLong), InvalidArgument);
}

}  // namespace
}  // namespace mantissa::tensor
