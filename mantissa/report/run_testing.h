#pragma once

// For tests: runs that are made up.

#include <string>
#include <utility>

#include "mantissa/report/run.h"

namespace mantissa::report {

inline Run example_run(const std::string& name, const std::string& precision, int64_t seed,
                       int64_t num_steps = 3) {
  Run run;
  run.name = name;
  run.settings = {{"data.fasta", "/data/lambda.fa"},
                  {"data.validation", "[ 'chr1:1-100' ]"},
                  {"precision.compute", precision},
                  {"train.seed", std::to_string(seed)}};
  record::RunStart start;
  start.config = "[precision]\ncompute = '" + precision + "'\n";
  start.versions = {{"libtorch", "2.13.0"}};
  start.cpu = "A processor";
  run.starts.push_back(std::move(start));
  for (int64_t i = 1; i <= num_steps; ++i) {
    record::Step step;
    step.step = i;
    step.bits_per_base = 2 + static_cast<double>(seed) / static_cast<double>(i);
    step.grad_norm = 1;
    step.lr = 1e-3;
    step.step_time_s = 0.01 * static_cast<double>(seed);
    step.tokens_per_s = 1000;
    step.peak_bytes = 5000;
    run.steps.push_back(step);
  }
  run.evaluations.push_back({num_steps, 1.9 + 0.01 * static_cast<double>(seed), 1.3});
  record::Summary summary;
  summary.steps = num_steps;
  summary.seed = seed;
  summary.precision = precision;
  summary.policy = "torch-fixed";
  summary.params = 100;
  summary.step_time_s = 0.01 * static_cast<double>(seed);
  summary.tokens_per_s = 1000;
  summary.bits_per_base = 1.9 + 0.01 * static_cast<double>(seed);
  summary.markov_bits_per_base = 1.978;
  summary.peak_bytes = {{"weights", 400}, {"activations", 6000}};
  summary.stopped_by = "steps";
  run.summary = summary;
  return run;
}

}  // namespace mantissa::report
