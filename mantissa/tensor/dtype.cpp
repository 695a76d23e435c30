#include "mantissa/tensor/dtype.h"

#include "mantissa/base/error.h"

namespace mantissa::tensor {

using numerics::Format;

at::ScalarType dtype_of(Format format) {
  switch (format) {
    case Format::fp32:
    case Format::tf32:
      return at::kFloat;
    case Format::bf16:
      return at::kBFloat16;
    case Format::fp16:
      return at::kHalf;
    case Format::fp8_e4m3:
      return at::kFloat8_e4m3fn;
    case Format::fp8_e5m2:
      return at::kFloat8_e5m2;
  }
  MANTISSA_ASSERT(false);
}

Format format_of(at::ScalarType dtype) {
  for (Format format : numerics::kFormats) {
    if (dtype_of(format) == dtype) {
      return format;
    }
  }
  throw InvalidArgument(concat("format_of: ", c10::toString(dtype),
                               " is not a training format; valid: Float BFloat16 Half "
                               "Float8_e4m3fn Float8_e5m2"));
}

}  // namespace mantissa::tensor
