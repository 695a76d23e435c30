#include "mantissa/numerics/error_bound.h"

#include "mantissa/base/error.h"

namespace mantissa::numerics {

double unit_roundoff(Format format, Rounding rounding) {
  const double epsilon = info(format).epsilon;
  return rounding == Rounding::nearest_even ? epsilon / 2 : epsilon;
}

double underflow_error(Format format, Rounding rounding) {
  const double gap = info(format).smallest_subnormal;
  return rounding == Rounding::nearest_even ? gap / 2 : gap;
}

double gamma(int64_t n, double unit_roundoff) {
  const double product = static_cast<double>(n) * unit_roundoff;
  MANTISSA_CHECK(n >= 0 && product >= 0 && product < 1, InvalidArgument, "gamma: n = ", n,
                 ", u = ", unit_roundoff, "; valid: 0 <= n and 0 <= n u < 1");
  return product / (1 - product);
}

double dot_error_bound(const DotProduct& product) {
  MANTISSA_CHECK(product.sum_abs_products >= 0 && product.sum_abs_inputs >= 0, InvalidArgument,
                 "dot_error_bound: sums of absolute values ", product.sum_abs_products, " and ",
                 product.sum_abs_inputs, "; they cannot be negative");
  const double gamma_n = gamma(product.length, unit_roundoff(Format::fp32));
  const auto n = static_cast<double>(product.length);

  double input_error = 0.0;
  if (product.input != Format::fp32) {
    const double u = unit_roundoff(product.input);
    const double h = underflow_error(product.input);
    input_error = (2 * u + u * u) * product.sum_abs_products +
                  h * (1 + u) * product.sum_abs_inputs + n * h * h;
  }
  double total = product.sum_abs_products + input_error;

  // A product below the normal numbers has an absolute error; sums there are exact.
  const double sum_error = gamma_n * total + n * underflow_error(Format::fp32) * (1 + gamma_n);
  total += sum_error;

  double output_error = 0.0;
  if (product.output != Format::fp32) {
    output_error = unit_roundoff(product.output) * total + underflow_error(product.output);
  }
  // The formula is evaluated in double: some 20 roundings of 2^-53 each, of positive terms.
  return (input_error + sum_error + output_error) * (1 + 0x1p-48);
}

}  // namespace mantissa::numerics
