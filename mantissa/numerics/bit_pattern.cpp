#include "mantissa/numerics/bit_pattern.h"

#include <array>
#include <ios>

#include "mantissa/base/error.h"

namespace mantissa::numerics {

uint32_t magnitude(Format format, uint32_t pattern) {
  const uint32_t sign = sign_mask(format);
  const uint32_t above = ~(sign | (sign - 1));
  const uint32_t pad = (1U << pad_bits(format)) - 1;
  MANTISSA_CHECK((pattern & above) == 0, InvalidArgument, "bit pattern: 0x", std::hex, pattern,
                 std::dec, " does not fit ", to_string(format), "; it has ",
                 info(format).storage_bits, " bits");
  MANTISSA_CHECK((pattern & pad) == 0, InvalidArgument, "bit pattern: 0x", std::hex, pattern,
                 std::dec, " is not ", to_string(format), "; its low ", pad_bits(format),
                 " bits must be zero");
  return (pattern & ~sign) >> pad_bits(format);
}

std::string_view to_string(NumberClass number_class) {
  constexpr std::array<std::string_view, 5> kNames = {"zero", "subnormal", "normal", "infinity",
                                                      "nan"};
  return kNames.at(static_cast<size_t>(number_class));
}

NumberClass classify(Format format, uint32_t pattern) {
  const uint32_t m = magnitude(format, pattern);
  if (m >= min_nan_magnitude(format)) {
    return NumberClass::nan;
  }
  if (m > max_magnitude(format)) {
    return NumberClass::infinity;
  }
  if (m >> info(format).fraction_bits != 0) {
    return NumberClass::normal;
  }
  return m == 0 ? NumberClass::zero : NumberClass::subnormal;
}

}  // namespace mantissa::numerics
