#pragma once

#include "mantissa/ops/window_sums.h"

namespace mantissa::ops {

/// Sums over windows as products of matrices: filter by windows, and sums by windows. The matrix of
/// windows, in which a number of the source stands once for each tap, is written only as panels
/// that are about to be multiplied. Sums are taken as in panel_product.h, over channels and in each
/// over taps, or over images and in each over windows.
void add_by_panels(const WindowSums& sums);
void add_by_panels(const FilterGradient& gradient);

}  // namespace mantissa::ops
