#pragma once

#include <cstddef>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/report/chart.h"

namespace mantissa::report {

/// At most `most` of the points, which must be 8 or more, in their order: as they are where they
/// are few enough, else of equal intervals of x the ones with the smallest and the largest y, the
/// first of those that are no number, and the very first and last point. So no extreme is lost. The
/// band of a point that stays is as wide as any in its interval.
MANTISSA_API std::vector<Point> decimate(const std::vector<Point>& points, size_t most);

/// How many points a line may have in a chart of so many lines.
MANTISSA_API size_t points_per_line(size_t num_lines);

}  // namespace mantissa::report
