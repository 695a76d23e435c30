#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/report/study.h"

namespace mantissa::report {

/// What a step of an arm would take on a device that nobody ran it on: the bounds of `mantissa
/// plan` (train/plan.h), by the peak rates of its vendor.
struct DeviceTime {
  std::string device;
  std::string arm;
  double products_s = 0;
  double memory_s = 0;
  std::string missing;       // why there is no time: the device lacks a rate; empty: it has all
  int64_t bytes = 0;         // at the peak of the step
  int64_t device_bytes = 0;  // that the device has

  double bound_s() const { return products_s > memory_s ? products_s : memory_s; }
  bool fits() const { return bytes <= device_bytes; }
};

/// A row a device below what was measured here, a column an arm, and a line that says what these
/// numbers are. Each device has a time for each arm of the study, in its order.
MANTISSA_API std::string device_times_text(const Study& study,
                                           const std::vector<DeviceTime>& times);

}  // namespace mantissa::report
