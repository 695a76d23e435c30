#pragma once

#include "mantissa/ops/window_sums.h"

namespace mantissa::ops {

/// Sums over windows line by line, for filters with few channels a group: a line of the source is
/// widened, and multiplied with itself shifted. Sums are taken over channels and in each over taps
/// in the order of tap_groups(); those for a gradient as cpu/window_kernel.h has it in each
/// line_windows() windows, and these are added in order.
void add_by_lines(const WindowSums& sums);
void add_by_lines(const FilterGradient& gradient);

/// Windows that are worked on at once.
int64_t line_windows(const Axes& axes);

}  // namespace mantissa::ops
