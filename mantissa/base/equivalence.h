#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "mantissa/base/api.h"

namespace mantissa {

enum class EquivalenceVerdict : uint8_t {
  equivalent,    // the difference is within the margin
  different,     // there is a difference, and it was not shown to be within the margin
  inconclusive,  // neither was shown; more pairs may
};

MANTISSA_API std::string_view to_string(EquivalenceVerdict verdict);

/// What pairs of measurements say of the mean of their differences.
struct Equivalence {
  size_t pairs = 0;
  double margin = 0;
  double mean = 0;       // of the differences
  double deviation = 0;  // their standard deviation, n - 1 below the line
  double low = 0;        // of the 90 % interval of the mean
  double high = 0;
  double p_equivalent = 0;     // the larger of the two one-sided tests
  double p_different = 0;      // of the two-sided test against 0
  double detectable = 0;       // the difference that 80 of 100 such experiments would find
  double provable_margin = 0;  // the smallest margin within which these pairs show equivalence
  EquivalenceVerdict verdict = EquivalenceVerdict::inconclusive;
};

/// Two one-sided t-tests at 5 % (Schuirmann, "A comparison of the two one-sided tests procedure and
/// the power approach for assessing the equivalence of average bioavailability", Journal of
/// Pharmacokinetics and Biopharmaceutics 15, 1987) of paired differences against a margin:
/// equivalent when both reject, that is, when the 90 % interval of the mean lies within it; else
/// different when the two-sided paired t-test at 5 % rejects 0; else inconclusive. `detectable` is
/// (t[0.975] + t[0.8]) deviation / sqrt(n) with n - 1 degrees of freedom, the usual approximation
/// of the noncentral distribution (Zar, Biostatistical Analysis, one-sample t-test), good to a
/// hundredth from five pairs on; of two pairs the power is 0.73. Differences without scatter are
/// taken for what they are: the interval is a point. Throws InvalidArgument for fewer than two
/// differences, one that is not finite, and a margin that is not above 0.
MANTISSA_API Equivalence paired_equivalence(const std::vector<double>& differences, double margin);

}  // namespace mantissa
