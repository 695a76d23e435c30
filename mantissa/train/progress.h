#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/record/event.h"
#include "mantissa/tensor/state_dict.h"

namespace mantissa::train {

/// Where a run stands: counters that the checkpoint holds, and step times of this record.
struct MANTISSA_API Progress {
  int64_t step = 0;  // done, applied or skipped
  int64_t skipped = 0;
  int64_t skipped_in_row = 0;
  int64_t validated_step = 0;  // 0: never
  int64_t best_step = 0;       // 0: none
  int64_t validations_since_best = 0;
  double best_bits = std::numeric_limits<double>::infinity();
  double validation_bits = std::numeric_limits<double>::quiet_NaN();  // of the last validation
  double loss = std::numeric_limits<double>::quiet_NaN();             // of the last step, nats

  void count_outcome(bool was_skipped);
  void count_validation(double bits_per_base);

  /// Collects the step times of events, also of those before a resume.
  void note(const record::Event& event);
  double median_step_time_s() const;  // NaN before the first step

  tensor::StateDict state_dict() const;  // without the step times: the record has them
  void load_state_dict(const tensor::StateDict& state);

 private:
  std::vector<double> step_times_s_;
};

}  // namespace mantissa::train
