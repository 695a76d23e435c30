#include "mantissa/base/equivalence.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "mantissa/base/error.h"
#include "mantissa/base/student_t.h"

namespace mantissa {
namespace {

constexpr double kLevel = 0.05;
constexpr double kPower = 0.8;

// P(T <= (value - 0) / error); a step where there is no error.
double cdf_of(double value, double error, double degrees) {
  if (error > 0) {
    return student_t_cdf(value / error, degrees);
  }
  return value > 0 ? 1 : value < 0 ? 0 : 0.5;
}

}  // namespace

std::string_view to_string(EquivalenceVerdict verdict) {
  switch (verdict) {
    case EquivalenceVerdict::equivalent:
      return "equivalent";
    case EquivalenceVerdict::different:
      return "different";
    case EquivalenceVerdict::inconclusive:
      return "inconclusive";
  }
  MANTISSA_ASSERT(false);
}

Equivalence paired_equivalence(const std::vector<double>& differences, double margin) {
  MANTISSA_CHECK(differences.size() >= 2, InvalidArgument, "equivalence: ", differences.size(),
                 " differences; a test needs at least 2");
  MANTISSA_CHECK(std::isfinite(margin) && margin > 0, InvalidArgument, "equivalence: margin ",
                 margin, "; it must be above 0");
  MANTISSA_CHECK(std::all_of(differences.begin(), differences.end(),
                             [](double value) { return std::isfinite(value); }),
                 InvalidArgument, "equivalence: a difference is not finite; leave that pair out");
  const auto count = static_cast<double>(differences.size());
  const double degrees = count - 1;
  Equivalence result;
  result.pairs = differences.size();
  result.margin = margin;
  result.mean = std::accumulate(differences.begin(), differences.end(), 0.0) / count;
  double squares = 0;
  for (const double value : differences) {
    squares += (value - result.mean) * (value - result.mean);
  }
  result.deviation = std::sqrt(squares / degrees);
  const double error = result.deviation / std::sqrt(count);
  const double half_width = student_t_quantile(1 - kLevel, degrees) * error;
  result.low = result.mean - half_width;
  result.high = result.mean + half_width;
  // The probability of a mean as far inside, were the true one at the margin.
  result.p_equivalent = std::max(cdf_of(result.mean - margin, error, degrees),
                                 cdf_of(-result.mean - margin, error, degrees));
  result.p_different = 2 * cdf_of(-std::fabs(result.mean), error, degrees);
  result.detectable =
      (student_t_quantile(1 - kLevel / 2, degrees) + student_t_quantile(kPower, degrees)) * error;
  result.provable_margin = std::fabs(result.mean) + half_width;
  result.verdict = result.p_equivalent < kLevel  ? EquivalenceVerdict::equivalent
                   : result.p_different < kLevel ? EquivalenceVerdict::different
                                                 : EquivalenceVerdict::inconclusive;
  return result;
}

}  // namespace mantissa
