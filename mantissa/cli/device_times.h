#pragma once

#include <vector>

#include "mantissa/cli/arms.h"
#include "mantissa/report/device_time.h"
#include "mantissa/train/device_spec.h"

namespace mantissa::cli {

/// Of the step of every arm on every device, device by device, by the arithmetic of `mantissa plan`
/// for one rank. After prepare_process() and decide_microbatches().
std::vector<report::DeviceTime> device_times(const std::vector<Arm>& arms,
                                             const std::vector<train::DeviceSpec>& devices);

}  // namespace mantissa::cli
