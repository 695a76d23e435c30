#pragma once

#include <vector>

#include "mantissa/base/api.h"

namespace mantissa::report {

// Of values that are finite; the others are left out. NaN where none is left.

MANTISSA_API double mean(const std::vector<double>& values);

/// Linear between the two nearest in order (Hyndman and Fan, Sample Quantiles, 1996, type 7).
MANTISSA_API double quantile(std::vector<double> values, double share);

/// Of a sample: divided by one less than their number. NaN for fewer than two.
MANTISSA_API double standard_deviation(const std::vector<double>& values);

}  // namespace mantissa::report
