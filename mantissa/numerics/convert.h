#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "mantissa/base/api.h"
#include "mantissa/numerics/format.h"
#include "mantissa/numerics/rounding.h"

namespace mantissa::numerics {

struct ConvertOptions {
  Rounding rounding = Rounding::nearest_even;
  Overflow overflow = Overflow::ieee;
  // Stochastic rounding alone reads these: element i takes word `offset + i` of the stream
  // Random(seed, stream) of base/random.h. So a span may be converted in parts, by any number of
  // threads, with the same result.
  uint64_t seed = 0;
  uint64_t stream = 0;
  uint64_t offset = 0;
};

/// Conversions of whole spans with the widest vector instructions of the running processor.
/// Each element is, bit for bit, what encode, decode and round_to of rounding.h give for it.
/// Spans need no alignment. Both spans must have one length and the format must be stored in
/// elements of the pattern span: bf16 and fp16 in 16 bits, fp8 in 8; else InvalidArgument.
/// Safe to call from many threads.
MANTISSA_API void encode(Format format, std::span<const float> values, std::span<uint16_t> patterns,
                         const ConvertOptions& options = {});
MANTISSA_API void encode(Format format, std::span<const float> values, std::span<uint8_t> patterns,
                         const ConvertOptions& options = {});

MANTISSA_API void decode(Format format, std::span<const uint16_t> patterns,
                         std::span<float> values);
MANTISSA_API void decode(Format format, std::span<const uint8_t> patterns, std::span<float> values);

/// Rounds to the numbers of any format and leaves them in fp32: the inputs of a tf32 product, or
/// the emulation of a narrow format. `rounded` may be `values` itself, and must not overlap it
/// otherwise.
MANTISSA_API void round_to(Format format, std::span<const float> values, std::span<float> rounded,
                           const ConvertOptions& options = {});

/// The instruction set in use, as Google Highway names it: `AVX2`, `AVX3` (AVX-512), ...
MANTISSA_API std::string_view simd_target();

}  // namespace mantissa::numerics
