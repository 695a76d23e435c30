#include "mantissa/monitor/watch.h"

#include <chrono>
#include <cmath>
#include <utility>

#include <ATen/record_function.h>

#include "mantissa/base/error.h"
#include "mantissa/monitor/call_values.h"

namespace mantissa::monitor {
namespace {

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string percent(double share) { return text(std::round(1000 * share) / 10) + " %"; }

std::string line_of(const Range& range, numerics::Format format) {
  const std::string name(numerics::to_string(format));
  const numerics::NarrowCounts& counts = range.values.in(format);
  const double headroom = numerics::headroom_bits(range.values, format);
  std::string line =
      concat(to_string(range.kind), " ", range.scope, range.scope.empty() ? "" : " ", range.name,
             ": ", to_string(judge(range, format)), ", largest ", text(range.values.largest));
  if (std::isfinite(headroom)) {
    line += concat(", ", text(std::round(10 * headroom) / 10), " bits to the largest of ", name);
  }
  if (counts.zero > 0) {
    line += concat(", ", percent(share(range, counts.zero)), " to 0");
  }
  const std::string remedy = advice(range, format);
  return concat(line, remedy.empty() ? "" : "; ", remedy, "\n");
}

}  // namespace

Watch::Watch(WatchOptions options) : options_(std::move(options)) {
  MANTISSA_CHECK(options_.every >= 1, InvalidArgument, "watch: every is ", options_.every,
                 "; use 1 or more steps");
}

Watch::~Watch() {
  if (is_open_) {
    end_step();
  }
  *self_ = nullptr;
}

Watch::Step::~Step() {
  if (*watch_ != nullptr) {
    (*watch_)->end_step();
  }
}

Watch::Step Watch::step() {
  MANTISSA_CHECK(!is_open_, InvalidArgument,
                 "watch: the step before has not ended; let what step() returned go out of scope");
  if (problem_) {
    std::rethrow_exception(std::exchange(problem_, nullptr));
  }
  step_begin_s_ = now_s();
  if (looks_next_ || cost_.steps % options_.every == 0) {
    recorder_ = std::make_unique<RangeRecorder>(
        RangeOptions{.parameters = options_.parameters, .updates = options_.updates});
    ++cost_.looked_at;
  }
  looks_next_ = false;
  is_open_ = true;
  ++cost_.steps;
  return Step(self_);
}

void Watch::end_step() noexcept {
  is_open_ = false;
  try {
    if (recorder_) {
      const std::unique_ptr<RangeRecorder> recorder = std::move(recorder_);
      recorder->finish();
      const double merge_begin_s = now_s();
      Sighting sighting{cost_.steps, recorder->ranges(), recorder->origin()};
      ranges_.merge(sighting.ranges);
      if (!sighting.origin.operation.empty() && !first_nonfinite_) {
        first_nonfinite_ = sighting;
      }
      cost_.cost_s += recorder->cost_s() + (now_s() - merge_begin_s);
      if (options_.observe) {
        options_.observe(sighting);
      }
    }
  } catch (...) {
    problem_ = std::current_exception();
  }
  cost_.steps_s += now_s() - step_begin_s_;
}

bool Watch::check(const at::Tensor& loss) {
  const at::RecordFunctionGuard no_record(false);  // it is no part of the step
  const bool is_finite = !holds_reals(loss) || all_finite(loss.detach());
  looks_next_ = looks_next_ || !is_finite;
  return is_finite;
}

std::string Watch::report(numerics::Format format, size_t most) const {
  std::string lines;
  if (first_nonfinite_) {
    lines += concat("step ", first_nonfinite_->step, ": the first value that is not finite is ",
                    describe(first_nonfinite_->origin), "\n");
  }
  size_t shown = 0;
  for (const Range& range : worst_first(by_scope(ranges_.all()), format)) {
    if (++shown <= most) {
      lines += line_of(range, format);
    }
  }
  if (shown > most) {
    lines += concat(shown - most, " more ranges have more room\n");
  }
  return concat(lines, "looked at ", cost_.looked_at, " of ", cost_.steps, " steps, which cost ",
                percent(cost_.share()), " of their time\n");
}

}  // namespace mantissa::monitor
