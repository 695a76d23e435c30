#include "mantissa/report/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace mantissa::report {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

std::vector<double> finite(std::vector<double> values) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  return values;
}

}  // namespace

double mean(const std::vector<double>& values) {
  const std::vector<double> kept = finite(values);
  double sum = 0;
  for (const double value : kept) {
    sum += value;
  }
  return kept.empty() ? kNone : sum / static_cast<double>(kept.size());
}

double quantile(std::vector<double> values, double share) {
  values = finite(std::move(values));
  if (values.empty()) {
    return kNone;
  }
  std::sort(values.begin(), values.end());
  const double place = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (place - std::floor(place)) * (values[above] - values[below]);
}

double standard_deviation(const std::vector<double>& values) {
  const std::vector<double> kept = finite(values);
  if (kept.size() < 2) {
    return kNone;
  }
  const double center = mean(kept);
  double squares = 0;
  for (const double value : kept) {
    squares += (value - center) * (value - center);
  }
  return std::sqrt(squares / static_cast<double>(kept.size() - 1));
}

}  // namespace mantissa::report
