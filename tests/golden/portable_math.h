#pragma once

#include <cstdint>

namespace mantissa::golden {

/// exp, log and powers whose bits are the same on every machine: made of additions, products and
/// divisions in FP64, which IEEE 754 defines to the last bit, where those of a libm differ between
/// its versions and, by processor, within one. One rounding to FP32 at the end.

/// e^x within 0.51 ulp, for -80 <= x <= 0.
float portable_exp(float x);

/// The natural logarithm within 0.51 ulp, for normal x > 0.
float portable_log(float x);

/// base^exponent by multiplication, for exponent >= 0.
double portable_power(double base, int64_t exponent);

}  // namespace mantissa::golden
