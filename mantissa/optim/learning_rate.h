#pragma once

#include <limits>
#include <utility>

#include <ATen/core/Tensor.h>

#include "mantissa/base/error.h"

namespace mantissa::optim {

/// A number of the host, or a 0-d FP64 or FP32 tensor on the device of the parameters, as lr_at()
/// makes of a count of steps there.
class LearningRate {
 public:
  LearningRate() = default;  // not set: refused by steps
  LearningRate(double value) : value_(value) {}
  LearningRate(at::Tensor on_device) : on_device_(std::move(on_device)) {
    MANTISSA_CHECK(on_device_.defined(), InvalidArgument,
                   "optimizer: lr is an undefined tensor; pass a number, or what lr_at() returns");
  }

  /// NaN when the rate is on a device or was not set.
  double value() const { return value_; }

  /// Undefined when the rate is a number of the host.
  const at::Tensor& on_device() const { return on_device_; }

 private:
  double value_ = std::numeric_limits<double>::quiet_NaN();
  at::Tensor on_device_;
};

}  // namespace mantissa::optim
