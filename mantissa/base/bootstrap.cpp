#include "mantissa/base/bootstrap.h"

#include <algorithm>
#include <utility>

#include "mantissa/base/error.h"
#include "mantissa/base/random.h"

namespace mantissa {

double median(std::vector<double> values) {
  MANTISSA_ASSERT(!values.empty());
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

Estimate bootstrap(const std::vector<std::vector<double>>& groups, const Statistic& statistic,
                   uint64_t seed) {
  constexpr int kResamples = 2000;
  std::vector<double> resampled;
  resampled.reserve(kResamples);
  for (int i = 0; i < kResamples; ++i) {
    Random random(seed, static_cast<uint64_t>(i));
    std::vector<std::vector<double>> drawn;
    drawn.reserve(groups.size());
    for (const std::vector<double>& group : groups) {
      MANTISSA_ASSERT(!group.empty());
      std::vector<double>& samples = drawn.emplace_back(group.size());
      for (double& value : samples) {
        value = group[random.below(group.size())];
      }
    }
    resampled.push_back(statistic(drawn));
  }
  std::sort(resampled.begin(), resampled.end());
  return {statistic(groups), resampled[kResamples / 40],
          resampled[kResamples - 1 - kResamples / 40]};
}

Estimate bootstrap_median(const std::vector<double>& samples, uint64_t seed) {
  return bootstrap(
      {samples}, [](const auto& groups) { return median(groups.front()); }, seed);
}

}  // namespace mantissa
