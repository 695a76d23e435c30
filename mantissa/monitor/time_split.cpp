#include "mantissa/monitor/time_split.h"

#include <chrono>

#include "mantissa/base/error.h"

namespace mantissa::monitor {

std::string_view to_string(Phase phase) {
  switch (phase) {
    case Phase::data:
      return "data";
    case Phase::forward:
      return "forward";
    case Phase::backward:
      return "backward";
    case Phase::optimizer:
      return "optimizer";
    case Phase::replay:
      return "replay";
    case Phase::other:
      return "other";
  }
  MANTISSA_ASSERT(false);
}

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

TimeSplit::TimeSplit(double (*now)()) : now_(now), begin_(now()), since_(begin_) {}

TimeSplit::Scope::Scope(TimeSplit* split, Phase phase)
    : split_(split), outer_(split == nullptr ? Phase::other : split->current()) {
  if (split_ != nullptr) {
    split_->change_to(phase);
  }
}

TimeSplit::Scope::~Scope() {
  if (split_ != nullptr) {
    split_->change_to(outer_);
  }
}

void TimeSplit::change_to(Phase phase) {
  const double now = now_();
  seconds_[static_cast<size_t>(current())] += now - since_;
  since_ = now;
  current_.store(phase, std::memory_order_relaxed);
}

double TimeSplit::seconds(Phase phase) const {
  return seconds_[static_cast<size_t>(phase)] + (phase == current() ? now_() - since_ : 0);
}

double TimeSplit::total_s() const { return now_() - begin_; }

}  // namespace mantissa::monitor
