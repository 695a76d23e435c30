#pragma once

#include "mantissa/base/api.h"

namespace mantissa::ops {

/// What LibTorch lets the products of a GPU round, of all threads: settings of the process that
/// other libraries change too, so a program says what it means.
struct DevicePrecision {
  /// FP32 factors are rounded to TF32 (10-bit fraction), in products and convolutions.
  bool tf32 = false;
  /// Sums of BF16 and FP16 products may be rounded to 16 bits between the parts that a product is
  /// split into. LibTorch's own setting is `true`; bounds in docs/numerics.md hold for `false`.
  bool reduced_sums = false;

  bool operator==(const DevicePrecision&) const = default;
};

MANTISSA_API DevicePrecision device_precision();

MANTISSA_API void set_device_precision(const DevicePrecision& precision);

/// While it lives. Not for two threads at once, of which the last would decide for both.
class MANTISSA_API DevicePrecisionGuard {
 public:
  explicit DevicePrecisionGuard(const DevicePrecision& precision);
  ~DevicePrecisionGuard();

  DevicePrecisionGuard(const DevicePrecisionGuard&) = delete;
  DevicePrecisionGuard& operator=(const DevicePrecisionGuard&) = delete;

 private:
  DevicePrecision before_;
};

}  // namespace mantissa::ops
