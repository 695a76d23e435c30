#pragma once

#include <cstdint>
#include <string_view>

#include "mantissa/base/api.h"
#include "mantissa/numerics/exact.h"
#include "mantissa/numerics/format.h"

namespace mantissa::numerics {

/// Where a number between two neighbours of a format goes.
/// nearest_even: the nearer; of two equally near ones that with an even fraction (IEEE 754-2019).
/// toward_zero: the smaller in magnitude.
/// stochastic: away from zero with a probability equal to the distance from the neighbour toward
/// zero, in units of the gap (Connolly, Higham and Mary, SIAM J. Sci. Comput. 43, 2021): the mean
/// is the number itself. With 32 random bits the probability is rounded down to a multiple of
/// 2^-32, which changes only distances finer than that.
enum class Rounding : uint8_t { nearest_even, toward_zero, stochastic };

/// What a magnitude that rounds past the largest finite number becomes.
/// ieee: infinity; in fp8_e4m3, which has none, NaN with the sign of the number (OCP 8-bit
/// floating point specification 1.0, non-saturating mode). Infinity stays infinity, or NaN.
/// Rounding toward zero gives the largest finite number, as IEEE 754-2019 says.
/// saturate: the largest finite number, also for infinity (OCP, saturating mode).
enum class Overflow : uint8_t { ieee, saturate };

MANTISSA_API std::string_view to_string(Rounding rounding);
MANTISSA_API std::string_view to_string(Overflow overflow);

/// Throw InvalidArgument with the nearest valid name.
MANTISSA_API Rounding parse_rounding(std::string_view name);
MANTISSA_API Overflow parse_overflow(std::string_view name);

/// The bit pattern (bit_pattern.h) of `value` in `format`: the scalar reference that the vector
/// conversions of convert.h agree with bit for bit. Subnormals are exact, whatever the
/// flush-to-zero mode of the processor; the sign of zero is kept; every NaN becomes
/// `nan_pattern(format)`. `random_bits`, uniform, are read by stochastic rounding alone.
MANTISSA_API uint32_t encode(Format format, float value, Rounding rounding = Rounding::nearest_even,
                             uint32_t random_bits = 0, Overflow overflow = Overflow::ieee);

/// The same with one rounding of a number that need not be an fp32 value.
MANTISSA_API uint32_t encode(Format format, const Exact& value,
                             Rounding rounding = Rounding::nearest_even, uint32_t random_bits = 0,
                             Overflow overflow = Overflow::ieee);

/// The value of a bit pattern: exact, as every format here is a subset of fp32. A NaN keeps its
/// sign and fraction, as the high bits of the fraction of fp32; from fp16 and fp8 it is made
/// quiet, as the processor's own conversion does. Throws InvalidArgument when bits are set outside
/// the format.
MANTISSA_API float decode(Format format, uint32_t pattern);

/// decode(encode(value)).
MANTISSA_API float round_to(Format format, float value, Rounding rounding = Rounding::nearest_even,
                            uint32_t random_bits = 0, Overflow overflow = Overflow::ieee);

}  // namespace mantissa::numerics
