#pragma once

#include <cstdint>

namespace mantissa::ops {

/// What one gradient says about the formats that could hold it, after unscaling and in FP32. Shares
/// of it are quotients with `count`: `fp16_zero` / `count` is what FP16 without a loss scale would
/// flush to zero. Roundings are to nearest even.
struct GradientStatistics {
  int64_t count = 0;           // elements
  int64_t zeros = 0;           // exact ones, of either sign
  int64_t non_finite = 0;      // infinities and NaNs
  int64_t fp32_subnormal = 0;  // below 2^-126, not 0: also those of BF16
  int64_t fp16_zero = 0;       // not 0, and 0 in FP16: up to 2^-25
  int64_t fp16_subnormal = 0;  // subnormal in FP16: fewer than 11 significant bits are left
  int64_t fp16_infinite = 0;   // finite, and infinite in FP16: from 65520 on
  float largest = 0;           // magnitude of finite ones; 0 without any
  float smallest = 0;          // magnitude of finite ones that are not 0; 0 without any
  double norm = 0;             // L2; not finite exactly when an element is not

  bool operator==(const GradientStatistics&) const = default;
};

}  // namespace mantissa::ops
