#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "mantissa/report/study.h"

namespace mantissa::report {

// For tests: a comparison without training. Runs of four rounds of ten steps each, a validation at
// the end of a round.
class StudyExample {
 public:
  static constexpr int64_t kSteps = 40;
  static constexpr int64_t kSliceSteps = 10;
  static constexpr int64_t kWarmup = 5;

  // `bits`: of the last validation; those before lie 0.3, 0.2 and 0.1 above it.
  StudyRun& add(const std::string& arm, int64_t seed, double step_s, double bits) {
    StudyRun& run = runs.emplace_back();
    run.arm = arm;
    run.seed = seed;
    record::Summary& summary = run.summary;
    summary.steps = kSteps;
    summary.bits_per_base = bits;
    summary.markov_bits_per_base = 1.978;
    summary.step_time_s = step_s;
    summary.tokens_per_s = 4096 / step_s;
    summary.params = 1000;
    summary.seed = seed;
    summary.precision = arm;
    summary.stopped_by = "steps";
    summary.bytes_per_param = {{"weights", 4}, {"moments", 8}};
    for (int64_t step = 1; step <= kSteps; ++step) {
      record::Step event;
      event.step = step;
      event.scale = arm == "fp16" && step > 20 ? 32768 : arm == "fp16" ? 65536 : 1;
      // A slice begins slowly, and the machine is slower in the later rounds.
      event.step_time_s = step_s * (is_warmup(step) ? 3 : 1) * drift(round_of(step));
      run.entries.push_back({0, event});
      if (step % kSliceSteps == 0) {
        const int64_t rounds_left = (kSteps - step) / kSliceSteps;
        const double above = 0.1 * static_cast<double>(rounds_left);
        run.entries.push_back({0, record::Evaluation{step, bits + above, 0}});
      }
    }
    for (int64_t round = 0; round < kSteps / kSliceSteps; ++round) {
      record::Slice& slice = slices.emplace_back();
      slice.arm = arm;
      slice.seed = seed;
      slice.session_s = 1e9;
      slice.round = round + 100 * seed;
      slice.first_step = kSliceSteps * round + 1;
      slice.last_step = kSliceSteps * (round + 1);
      slice.wall_s = 2 * kSliceSteps * step_s;
      const int64_t more = round == 1 ? 500 : 0;
      const int64_t activations = (arm == "fp32" ? 8000 : 4000) + more;
      slice.peak_bytes = {{"weights", 2000}, {"activations", activations}};
      slice.peak_holders = {{"activations blocks.0", activations}, {"weights blocks.0", 10}};
    }
    return runs.back();
  }

  Study analysed(const StudyOptions& options = {}) const {
    std::vector<std::string> arms;
    for (const StudyRun& run : runs) {
      if (std::find(arms.begin(), arms.end(), run.arm) == arms.end()) {
        arms.push_back(run.arm);
      }
    }
    return analyse(arms, arms.front(), runs, slices, options);
  }

  static int64_t round_of(int64_t step) { return (step - 1) / kSliceSteps; }
  static bool is_warmup(int64_t step) { return (step - 1) % kSliceSteps < kWarmup; }
  static double drift(int64_t round) { return 1 + 0.25 * static_cast<double>(round); }

  std::vector<StudyRun> runs;
  std::vector<record::Slice> slices;
};

// fp32 and bf16 over `seeds` seeds; bf16 has 0.8 of the step time and `difference` more bits, and
// little scatter.
inline StudyExample two_arms(int64_t seeds, double difference = 0.0005) {
  StudyExample example;
  for (int64_t seed = 1; seed <= seeds; ++seed) {
    const double scatter = 0.0002 * static_cast<double>(seed % 3 - 1);
    const double base = 1.95 + 0.01 * static_cast<double>(seed);
    example.add("fp32", seed, 0.01, base);
    example.add("bf16", seed, 0.008, base + difference + scatter);
  }
  return example;
}

}  // namespace mantissa::report
