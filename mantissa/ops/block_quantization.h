#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "mantissa/base/api.h"

/// FP32 numbers as 8-bit codes and one FP32 scale for each block of 256, as in Dettmers et al.,
/// "8-bit Optimizers via Block-wise Quantization" (2022, arXiv:2110.02861).
namespace mantissa::ops {

inline constexpr int64_t kQuantizationBlock = 256;

/// The "dynamic" maps of that paper: 256 numbers of [-1, 1] or of [0, 1], of which the codes are
/// the positions in increasing order. Decade k = 0..6, [10^-(k+1), 10^-k], is cut into n_k equal
/// parts, of which the map has the middles; beside these it has 0 and 1.
///
/// | map         | n_k      | relative error at most, k = 0..5      | below 10^-6, absolute    |
/// | ----------- | -------- | ------------------------------------- | ------------------------ |
/// | with_sign   | 2^(6-k)  | 6.2 %, 11 %, 18 %, 28 %, 47 %, 72 %   | 0.45 * 10^-6             |
/// | nonnegative | 2^(7-k)  | 3.3 %, 6.2 %, 11 %, 18 %, 28 %, 47 %  | 0.325 * 10^-6            |
///
/// Relative to x / scale: max(4.5 / (n + 9), 2.7 / (n + 1.8)), the half of a gap over the number in
/// the middle of it, within a decade and at its lower end. -1 is not in the signed map: the nearest
/// is -0.993.
enum class CodeMap : uint8_t { with_sign, nonnegative };

MANTISSA_API const std::array<float, 256>& numbers_of(CodeMap map);

/// The code of 0.
MANTISSA_API uint8_t zero_code(CodeMap map);

/// Each number is divided by the largest magnitude of its block and becomes the code of the nearest
/// number of the map, of two equally near ones that of the larger magnitude. `codes` is as long as
/// `values`, `scales` has one for each block that is begun. A block of zeros has scale 0.
///
/// A positive number never becomes 0 in the nonnegative map, but at least the smallest positive
/// one, 0.325 * 10^-6 of the scale: under a root and a division, as a second moment is, 0 would
/// make the quotient enormous (the "zero-point problem" of Li et al., "Memory Efficient Optimizers
/// with 4-bit States", 2023, arXiv:2309.01507). A number that is not finite makes all of its block
/// NaN.
MANTISSA_API void quantize(CodeMap map, std::span<const float> values, std::span<uint8_t> codes,
                           std::span<float> scales);

/// number of the code * scale.
MANTISSA_API void dequantize(CodeMap map, std::span<const uint8_t> codes,
                             std::span<const float> scales, std::span<float> values);

/// `quantize` by looking at every number of the map: what it must be bit for bit.
MANTISSA_API void quantize_reference(CodeMap map, std::span<const float> values,
                                     std::span<uint8_t> codes, std::span<float> scales);

}  // namespace mantissa::ops
