#pragma once

#include <cstdint>
#include <string>

#include "mantissa/base/api.h"
#include "mantissa/record/event.h"

namespace mantissa::report {

/// What a progress line needs beside the step itself.
struct ProgressContext {
  int64_t total_steps = 0;
  int64_t skipped = 0;      // steps so far
  double seconds_left = 0;  // estimate
  double data_wait_s = 0;   // of all steps since the start of this process
};

/// One line: step, time left, loss in bits per base, tokens/s, gradient norm, scale, skipped steps,
/// peak of tensor bytes, seconds that steps waited for data.
MANTISSA_API std::string progress_line(const record::Step& step, const ProgressContext& context);

/// `validation  step 200  1.931 bits/base`
MANTISSA_API std::string evaluation_line(const record::Evaluation& evaluation);

}  // namespace mantissa::report
