#include "portable_math.h"

#include <cfloat>
#include <cmath>

#ifdef __FAST_MATH__
#error "the golden curves are defined by IEEE 754 arithmetic; compile without -ffast-math"
#endif
static_assert(FLT_EVAL_METHOD == 0,
              "the golden curves need FP32 and FP64 without excess precision");

namespace mantissa::golden {
namespace {

// ln 2 = high + low; high ends in 32 zero bits, so that its product with a small integer is exact.
constexpr double kLn2High = 0x1.62e42p-1;
constexpr double kLn2Low = 0x1.fdf473de6af28p-22;
constexpr double kInverseLn2 = 0x1.71547652b82fep+0;

}  // namespace

float portable_exp(float x) {
  const double n = std::floor((x * kInverseLn2) + 0.5);
  const double r = (x - (n * kLn2High)) - (n * kLn2Low);  // |r| <= 0.35
  // Taylor's series; the first term left out, r^15 / 15!, is below 2^-62.
  double sum = 1.0;
  for (int k = 14; k >= 1; --k) {
    sum = 1.0 + (sum * r / k);
  }
  return static_cast<float>(std::ldexp(sum, static_cast<int>(n)));
}

float portable_log(float x) {
  int exponent = 0;
  double m = std::frexp(static_cast<double>(x), &exponent);  // in [1/2, 1)
  if (m < 0x1.6a09e667f3bcdp-1) {                            // the root of 1/2
    m *= 2;
    --exponent;
  }
  // log m = 2 artanh f; |f| <= 0.172, and the first term left out, f^23 / 23, is below 2^-62.
  const double f = (m - 1) / (m + 1);
  double sum = 0.0;
  for (int k = 21; k >= 1; k -= 2) {
    sum = (sum * f * f) + (1.0 / k);
  }
  const double log_m = 2 * f * sum;
  return static_cast<float>((exponent * kLn2High) + ((exponent * kLn2Low) + log_m));
}

double portable_power(double base, int64_t exponent) {
  double power = 1.0;
  for (int64_t i = 0; i < exponent; ++i) {
    power *= base;
  }
  return power;
}

}  // namespace mantissa::golden
