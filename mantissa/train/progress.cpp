#include "mantissa/train/progress.h"

#include <algorithm>

namespace mantissa::train {
namespace {

// The one list of what the checkpoint holds: visited for saving and for loading.
template <typename Self, typename Integer, typename Real>
void visit(Self& progress, const Integer& integer, const Real& real) {
  integer("step", progress.step);
  integer("skipped", progress.skipped);
  integer("skipped_in_row", progress.skipped_in_row);
  integer("validated_step", progress.validated_step);
  integer("best_step", progress.best_step);
  integer("validations_since_best", progress.validations_since_best);
  real("best_bits", progress.best_bits);
  real("validation_bits", progress.validation_bits);
  real("loss", progress.loss);
}

}  // namespace

void Progress::count_outcome(bool was_skipped) {
  skipped += was_skipped ? 1 : 0;
  skipped_in_row = was_skipped ? skipped_in_row + 1 : 0;
}

void Progress::count_validation(double bits_per_base) {
  validated_step = step;
  validation_bits = bits_per_base;
  if (bits_per_base < best_bits) {
    best_bits = bits_per_base;
    best_step = step;
    validations_since_best = 0;
  } else {
    ++validations_since_best;
  }
}

void Progress::note(const record::Event& event) {
  if (const auto* done = std::get_if<record::Step>(&event)) {
    step_times_s_.push_back(done->step_time_s);
    loss = done->loss;
  }
}

double Progress::median_step_time_s() const {
  if (step_times_s_.empty()) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  std::vector<double> sorted = step_times_s_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

tensor::StateDict Progress::state_dict() const {
  tensor::StateDict state;
  const auto set = [&](const char* name, const auto& value) { state.set(name, value); };
  visit(*this, set, set);
  return state;
}

void Progress::load_state_dict(const tensor::StateDict& state) {
  visit(
      *this, [&](const char* name, int64_t& value) { value = state.integer(name); },
      [&](const char* name, double& value) { value = state.real(name); });
}

}  // namespace mantissa::train
