#pragma once

#include "mantissa/base/api.h"

namespace mantissa {

/// P(T <= t) of Student's distribution with `degrees` > 0 degrees of freedom, to about 14 digits:
/// 1 - I_x(degrees / 2, 1 / 2) / 2 at x = degrees / (degrees + t^2) for t >= 0, where I is the
/// regularized incomplete beta function by its continued fraction (Abramowitz and Stegun, Handbook
/// of Mathematical Functions, 1964, 26.5.8 and 26.7.1), which the method of Lentz sums up.
MANTISSA_API double student_t_cdf(double t, double degrees);

/// The t with P(T <= t) = probability, which is between 0 and 1, both excluded. By bisection.
MANTISSA_API double student_t_quantile(double probability, double degrees);

}  // namespace mantissa
