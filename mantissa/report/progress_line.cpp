#include "mantissa/report/progress_line.h"

#include <array>
#include <cmath>
#include <cstdio>

#include "mantissa/base/error.h"
#include "mantissa/report/quantity.h"

namespace mantissa::report {
namespace {

std::string fixed(double value, int digits) {
  if (std::isnan(value)) {
    return "nan";  // printf also prints its sign
  }
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.*f", digits, value);
  return buffer.data();
}

}  // namespace

std::string progress_line(const record::Step& step, const ProgressContext& context) {
  return concat("step ", step.step, "/", context.total_steps, "  left ",
                duration_text(context.seconds_left), "  ", fixed(step.bits_per_base, 4),
                " bits/base  ", count_text(step.tokens_per_s), " tokens/s  |g| ",
                fixed(step.grad_norm, 3), "  scale ", scale_text(step.scale), "  skipped ",
                context.skipped, "  peak ", bytes_text(step.peak_bytes), "  data wait ",
                seconds_text(context.data_wait_s));
}

std::string evaluation_line(const record::Evaluation& evaluation) {
  return concat("validation  step ", evaluation.step, "  ", fixed(evaluation.bits_per_base, 4),
                " bits/base");
}

}  // namespace mantissa::report
