#include "mantissa/base/rank_statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>

#include "mantissa/base/error.h"

namespace mantissa {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double mean(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Of the mean, when the values are a sample.
double squared_error_of_mean(std::span<const double> values) {
  const double center = mean(values);
  double sum = 0;
  for (const double value : values) {
    sum += (value - center) * (value - center);
  }
  const auto count = static_cast<double>(values.size());
  return sum / (count - 1) / count;
}

}  // namespace

std::vector<double> mid_ranks(std::span<const double> values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) { return values[i]; });
  std::vector<double> ranks(values.size());
  for (size_t first = 0; first < order.size();) {
    size_t last = first;
    while (last + 1 < order.size() && values[order[last + 1]] == values[order[first]]) {
      ++last;
    }
    for (size_t i = first; i <= last; ++i) {
      ranks[order[i]] = 1 + (static_cast<double>(first) + static_cast<double>(last)) / 2;
    }
    first = last + 1;
  }
  return ranks;
}

double spearman(std::span<const double> a, std::span<const double> b) {
  MANTISSA_CHECK(a.size() == b.size(), InvalidArgument, "spearman: ", a.size(), " and ", b.size(),
                 " values; give pairs");
  if (a.size() < 2) {
    return kNan;
  }
  const std::vector<double> ranks_a = mid_ranks(a);
  const std::vector<double> ranks_b = mid_ranks(b);
  const double center = (static_cast<double>(a.size()) + 1) / 2;
  double aa = 0;
  double bb = 0;
  double ab = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    aa += (ranks_a[i] - center) * (ranks_a[i] - center);
    bb += (ranks_b[i] - center) * (ranks_b[i] - center);
    ab += (ranks_a[i] - center) * (ranks_b[i] - center);
  }
  return aa == 0 || bb == 0 ? kNan : ab / std::sqrt(aa * bb);
}

Estimate auroc(std::span<const double> positive, std::span<const double> negative) {
  if (positive.empty() || negative.empty()) {
    return {kNan, kNan, kNan};
  }
  std::vector<double> all(positive.begin(), positive.end());
  all.insert(all.end(), negative.begin(), negative.end());
  const std::vector<double> among_all = mid_ranks(all);
  const std::vector<double> among_positive = mid_ranks(positive);
  const std::vector<double> among_negative = mid_ranks(negative);
  const auto num_positive = static_cast<double>(positive.size());
  const auto num_negative = static_cast<double>(negative.size());
  // Of each positive the share of negatives below it, of each negative that of positives above.
  std::vector<double> of_positive;
  for (size_t i = 0; i < positive.size(); ++i) {
    of_positive.push_back((among_all[i] - among_positive[i]) / num_negative);
  }
  std::vector<double> of_negative;
  for (size_t i = 0; i < negative.size(); ++i) {
    of_negative.push_back(1 - (among_all[positive.size() + i] - among_negative[i]) / num_positive);
  }
  const double area = mean(of_positive);
  if (positive.size() < 2 || negative.size() < 2) {
    return {area, kNan, kNan};
  }
  constexpr double kNormal95 = 1.959963984540054;
  const double half = kNormal95 * std::sqrt(squared_error_of_mean(of_positive) +
                                            squared_error_of_mean(of_negative));
  return {area, std::max(0.0, area - half), std::min(1.0, area + half)};
}

}  // namespace mantissa
