#include "mantissa/train/microbatch.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/tensor/generator_state.h"
#include "mantissa/tensor/memory.h"
#include "mantissa/train/step.h"

namespace mantissa::train {
namespace {

namespace memory = tensor::memory;

constexpr int64_t kMostGrowth = 4;  // from one measurement to the next

struct Measured {
  int64_t microbatch;
  StepBytes bytes;
};

// By the line through the last two.
double expected_peak(const std::vector<Measured>& line, int64_t microbatch) {
  const Measured& last = line.back();
  const Measured& before = line[line.size() - 2];
  return static_cast<double>(last.bytes.peak) +
         static_cast<double>(microbatch - last.microbatch) *
             static_cast<double>(last.bytes.peak - before.bytes.peak) /
             static_cast<double>(last.microbatch - before.microbatch);
}

// The generator and the memory as they were, however a measurement ends.
class ThingsAsTheyWere {
 public:
  ThingsAsTheyWere() = default;
  ~ThingsAsTheyWere() {
    tensor::set_cpu_generator_state(generator_);
    memory::release_cached();
    memory::reset_peak();
  }
  ThingsAsTheyWere(const ThingsAsTheyWere&) = delete;
  ThingsAsTheyWere& operator=(const ThingsAsTheyWere&) = delete;

  int64_t bytes() const { return static_cast<int64_t>(generator_.nbytes()); }

 private:
  at::Tensor generator_ = tensor::cpu_generator_state();
};

int64_t data_bytes(const RunConfig& config, int64_t sequences) {
  return sequences * config.data.context * 2 * static_cast<int64_t>(sizeof(int64_t));
}

}  // namespace

std::optional<MicrobatchChoice> largest_microbatch(int64_t batch, int64_t memory_bytes,
                                                   const MeasureStep& measure) {
  std::vector<int64_t> divisors;
  for (int64_t i = 1; i <= batch; ++i) {
    if (batch % i == 0) {
      divisors.push_back(i);
    }
  }
  const auto measure_or_too_much = [&](int64_t microbatch) -> StepBytes {
    try {
      return measure(microbatch);
    } catch (const memory::OutOfMemory&) {
      return {.peak = std::numeric_limits<int64_t>::max()};
    }
  };
  std::vector<Measured> line = {{1, measure(1)}};
  MicrobatchChoice best = {1, line[0].bytes};
  if (best.bytes.peak > memory_bytes) {
    return std::nullopt;
  }
  if (batch == 1) {
    return best;
  }
  line.push_back({2, measure_or_too_much(2)});
  if (batch % 2 == 0 && line[1].bytes.peak <= memory_bytes) {
    best = {2, line[1].bytes};
  }
  int64_t too_large = batch + 1;
  for (;;) {
    const Measured& last = line.back();
    int64_t next = 0;
    for (const int64_t divisor : divisors) {
      const bool is_new = divisor > last.microbatch && divisor < too_large;
      const bool is_near = divisor <= kMostGrowth * last.microbatch || next == 0;
      const int64_t lacks = divisor == batch ? line[0].bytes.gradients : 0;
      if (is_new && is_near &&
          expected_peak(line, divisor) <= static_cast<double>(memory_bytes + lacks)) {
        next = divisor;
      }
    }
    if (next == 0) {
      return best;
    }
    const StepBytes bytes = measure_or_too_much(next);
    if (bytes.peak <= memory_bytes) {
      line.push_back({next, bytes});
      best = {next, bytes};
    } else {
      too_large = next;
    }
  }
}

StepBytes measure_step(const RunConfig& config, const RunData& data, int64_t microbatch) {
  const ThingsAsTheyWere afterwards;
  RunConfig trial = config;
  trial.train.microbatch = microbatch;
  trial.train.explain_skips = false;
  trial.data.prefetch = 1;
  // The second of several microbatches finds gradients, and sums of them.
  const int64_t passes = std::min<int64_t>(2, config.train.batch / microbatch);
  StepBytes bytes;
  {
    Learner learner(trial);
    const auto loader = make_loader(trial, data);
    std::vector<data::Batch> batches;
    for (int64_t i = 0; i < passes; ++i) {
      batches.push_back(loader->next());
    }
    memory::reset_peak();
    const StepReport report = training_step(learner.parts(), batches, learner.lr());
    bytes.peak = memory::peak_bytes().total();
    bytes.gradients = report.bytes.gradients + report.bytes.accumulators;
  }
  // A run holds the data of all microbatches of a step, and no second copy of the generator.
  bytes.peak += data_bytes(config, config.train.batch - passes * microbatch) - afterwards.bytes();
  return bytes;
}

RunConfig with_microbatch(const RunConfig& config, const RunData& data, std::string* told) {
  if (config.train.microbatch != kAutoMicrobatch) {
    return config;
  }
  use_threads(config);
  constexpr int64_t kKept = 32;  // one part of so many: what the allocator keeps beyond the peak
  const int64_t room = memory::room_for_tensors();
  int64_t available = room - room / (kKept + 1);
  const std::optional<int64_t> given = config.memory_bytes();
  const bool is_given = given && *given <= available;
  if (is_given) {
    available = *given;
  }
  const std::string of = is_given ? "train.memory" : "the system";
  StepBytes of_one;
  const auto choice = largest_microbatch(config.train.batch, available, [&](int64_t microbatch) {
    const StepBytes bytes = measure_step(config, data, microbatch);
    of_one = microbatch == 1 ? bytes : of_one;
    return bytes;
  });
  MANTISSA_CHECK(choice, Error, "train.microbatch auto: a step of one sequence a pass takes ",
                 of_one.peak, " bytes of tensors, and ", of, " gives ", available,
                 "; give more, or use a smaller model, context or train.batch, or another "
                 "train.recompute");
  RunConfig result = config;
  result.train.microbatch = choice->microbatch;
  result.train.memory.clear();
  if (told != nullptr) {
    *told = concat("train.microbatch auto is ", choice->microbatch, " of the ", config.train.batch,
                   " sequences of a step, which takes ", choice->bytes.peak, " bytes of tensors; ",
                   of, " gives ", available);
  }
  return result;
}

}  // namespace mantissa::train
