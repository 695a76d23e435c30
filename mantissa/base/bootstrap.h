#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "mantissa/base/api.h"

namespace mantissa {

/// The middle one, or the mean of the two in the middle. Not of nothing.
MANTISSA_API double median(std::vector<double> values);

struct Estimate {
  double value = 0;
  double low = 0;  // of the 95 % interval
  double high = 0;
};

/// Makes one number of groups of samples.
using Statistic = std::function<double(const std::vector<std::vector<double>>& groups)>;

/// `statistic` of the groups, with the interval of a percentile bootstrap (Efron, "Bootstrap
/// methods: another look at the jackknife", Annals of Statistics 7, 1979): the samples of each
/// group are drawn with replacement, 2,000 times, by a generator with `seed`.
MANTISSA_API Estimate bootstrap(const std::vector<std::vector<double>>& groups,
                                const Statistic& statistic, uint64_t seed);

/// The same of the median of one group. Below six samples even the least and the greatest of them
/// hold the median between them less often than 95 of 100 times (1 - 2^(1 - n)), so there the
/// interval is too narrow.
MANTISSA_API Estimate bootstrap_median(const std::vector<double>& samples, uint64_t seed);

}  // namespace mantissa
