#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "mantissa/base/api.h"
#include "mantissa/report/speed_facts.h"

namespace mantissa::report {

/// Why a 16-bit run is not faster than FP32, or that it is. The first that holds:
enum class SpeedVerdict : uint8_t {
  as_expected,   // it is faster by a tenth or more, and by four fifths of what was predicted
  input_bound,   // a quarter of the step waits for data
  cast_bound,    // a sixth of the step is casts
  too_small,     // a third of the step is calls so small that the call counts
  no_units,      // most of the products in 16 bits are widened, for want of 16-bit units
  slow_kernels,  // a quarter of the step is products, which take longer than in FP32
  unsupported,   // a quarter of the step is kept from 16-bit units by policy, kernel, shape
  memory_bound,  // most of the products in 16 bits wait for memory
  few_products,  // less than half of the step is products: 16 bits can do no more
  unclear,       // none of these
};

/// `input-bound`, `cast-bound`, ...
MANTISSA_API std::string_view to_string(SpeedVerdict verdict);

struct SpeedAnswer {
  SpeedVerdict verdict = SpeedVerdict::unclear;
  std::string why;     // a sentence with the numbers that decided
  std::string advice;  // what to do
};

/// A pure function of the facts; what is not known decides nothing.
MANTISSA_API SpeedAnswer judge_speed(const SpeedFacts& facts);

/// `cast-bound: 31 % of a step is casts between FP32 and bf16; keep ...`
MANTISSA_API std::string to_string(const SpeedAnswer& answer);

}  // namespace mantissa::report
