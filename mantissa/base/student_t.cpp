#include "mantissa/base/student_t.h"

#include <cmath>
#include <limits>

#include "mantissa/base/error.h"

namespace mantissa {
namespace {

// The continued fraction of I_x(a, b), which converges fast for x < (a + 1) / (a + b + 2).
double beta_fraction(double x, double a, double b) {
  constexpr double kTiny = std::numeric_limits<double>::min();
  constexpr int kMostTerms = 10'000;
  const auto not_zero = [](double value) { return std::fabs(value) < kTiny ? kTiny : value; };
  double numerator = 1;
  double denominator = 1 / not_zero(1 - (a + b) * x / (a + 1));
  double fraction = denominator;
  for (int m = 1; m <= kMostTerms; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    double change = 1;
    for (const double term : {even, odd}) {
      denominator = 1 / not_zero(1 + term * denominator);
      numerator = not_zero(1 + term / numerator);
      change = numerator * denominator;
      fraction *= change;
    }
    if (std::fabs(change - 1) < std::numeric_limits<double>::epsilon()) {
      break;
    }
  }
  return fraction;
}

// I_x(a, b); `rest` is 1 - x, which has digits of its own where x is almost 1.
double incomplete_beta(double x, double rest, double a, double b) {
  if (x <= 0 || rest <= 0) {
    return x <= 0 ? 0 : 1;
  }
  const double front = std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) +
                                a * std::log(x) + b * std::log(rest));
  return x < (a + 1) / (a + b + 2) ? front * beta_fraction(x, a, b) / a
                                   : 1 - front * beta_fraction(rest, b, a) / b;
}

}  // namespace

double student_t_cdf(double t, double degrees) {
  MANTISSA_CHECK(degrees > 0, InvalidArgument, "student_t: ", degrees,
                 " degrees of freedom; they must be above 0");
  const double whole = degrees + t * t;
  const double tail = incomplete_beta(degrees / whole, t * t / whole, degrees / 2, 0.5) / 2;
  return t < 0 ? tail : 1 - tail;
}

double student_t_quantile(double probability, double degrees) {
  MANTISSA_CHECK(probability > 0 && probability < 1, InvalidArgument, "student_t: probability ",
                 probability, "; it must be between 0 and 1");
  if (probability > 0.5) {
    return -student_t_quantile(1 - probability, degrees);
  }
  double low = -1;  // the left tail keeps its digits where the right one is 1 minus little
  while (student_t_cdf(low, degrees) > probability) {
    low *= 2;
  }
  double high = 0;
  for (double middle = low / 2; middle > low && middle < high; middle = low + (high - low) / 2) {
    (student_t_cdf(middle, degrees) < probability ? low : high) = middle;
  }
  return high;
}

}  // namespace mantissa
