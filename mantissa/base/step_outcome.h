#pragma once

#include <cstdint>

namespace mantissa {

/// What an optimizer step did. A schedule, an average of weights and a count of steps follow the
/// steps that were applied.
enum class StepOutcome : uint8_t {
  applied,
  skipped,  // a gradient was not finite: weights, moments and step counts are bit for bit as before
  nothing_to_do,  // no parameter has a gradient
};

}  // namespace mantissa
