#pragma once

#include <cstdint>

#include "mantissa/base/api.h"
#include "mantissa/monitor/ranges.h"
#include "mantissa/record/event.h"

namespace mantissa::train {

/// Ranges as a line of a record, which `mantissa report` draws.
///
///     monitor::Watch watch({.observe = [&](const monitor::Sighting& sighting) {
///       writer.append(train::range_event(sighting.step, sighting.ranges));
///     }});
MANTISSA_API record::Ranges range_event(int64_t step, const monitor::Ranges& ranges,
                                        double scale = 1);

}  // namespace mantissa::train
