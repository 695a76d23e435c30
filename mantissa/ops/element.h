#pragma once

#include <cstdint>

#include "mantissa/numerics/format.h"
#include "mantissa/numerics/rounding.h"

namespace mantissa::ops {

/// A number of an array: bf16 and fp16 are patterns, fp32 floats, tf32 floats that are rounded when
/// read.
inline float element(const void* data, numerics::Format format, int64_t index) {
  using numerics::Format;
  return format == Format::fp32 || format == Format::tf32
             ? numerics::round_to(format, static_cast<const float*>(data)[index])
             : numerics::decode(format, static_cast<const uint16_t*>(data)[index]);
}

/// Rounds a number into an array of bf16, fp16 or fp32.
inline void set_element(void* data, numerics::Format format, int64_t index, float number) {
  if (format == numerics::Format::fp32) {
    static_cast<float*>(data)[index] = number;
  } else {
    static_cast<uint16_t*>(data)[index] = static_cast<uint16_t>(numerics::encode(format, number));
  }
}

}  // namespace mantissa::ops
