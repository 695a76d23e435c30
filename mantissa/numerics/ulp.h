#pragma once

#include <cstdint>

#include "mantissa/base/api.h"
#include "mantissa/numerics/format.h"

namespace mantissa::numerics {

/// The gap between neighbours of `format` in the binade of `value`, which need not be a number of
/// the format: 2^(e - fraction_bits) for 2^e <= |value| < 2^(e+1), the smallest subnormal below
/// the smallest normal, and the gap below the largest finite number beyond it (Muller et al.,
/// Handbook of Floating-Point Arithmetic, 2018, definition 2.5). NaN for NaN.
MANTISSA_API double ulp(Format format, double value);

/// The pattern of the next larger or smaller number (IEEE 754-2019, nextUp and nextDown). Past
/// the largest finite number come infinity or, in fp8_e4m3, NaN. Both zeros have the same
/// neighbours, infinity stays where nothing is beyond it, NaN stays NaN.
MANTISSA_API uint32_t next_up(Format format, uint32_t pattern);
MANTISSA_API uint32_t next_down(Format format, uint32_t pattern);

/// How many steps of next_up lead from `from` to `to`; negative when `to` is smaller. Both zeros
/// are one number. Throws InvalidArgument for NaN.
MANTISSA_API int64_t ulps_between(Format format, uint32_t from, uint32_t to);

/// |approximate - reference| in units of ulp(format, reference).
MANTISSA_API double error_in_ulps(Format format, double approximate, double reference);

}  // namespace mantissa::numerics
