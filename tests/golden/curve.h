#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "mantissa/numerics/format.h"

namespace mantissa::golden {

inline constexpr int64_t kCurveSteps = 40;
inline constexpr std::array kCurveFormats = {numerics::Format::fp32, numerics::Format::tf32,
                                             numerics::Format::bf16, numerics::Format::fp16};

/// The text of tests/golden/curves/<format>.txt: after two lines that start with '#', one line a
/// step with its number, the loss in hexadecimal and as the shortest decimal that reads back, the
/// loss scale, and `applied` or `skipped`; last `weights` and the xxh3 of the final weights, hidden
/// before output, as little-endian FP32.
std::string curve_text(numerics::Format compute, std::string_view bases);

}  // namespace mantissa::golden
