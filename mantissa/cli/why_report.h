#pragma once

#include <cstddef>
#include <string>

#include "mantissa/monitor/roofline.h"
#include "mantissa/report/speed_facts.h"
#include "mantissa/train/why_run.h"

namespace mantissa::cli {

/// What `mantissa why` has found.
struct Why {
  std::string run_file;
  train::TimedPair pair;  // FP32 first
  monitor::Roofline roofline;
  report::SpeedFacts facts;  // of the second
  std::vector<report::OperationGain> gains;
};

/// Puts the measurements together. Throws Error when the steps took no time.
Why explain(std::string run_file, train::TimedPair pair, monitor::Roofline roofline);

/// For people, with the first `most_rows` operations.
std::string text_of(const Why& why, size_t most_rows);

/// One line of JSON.
std::string json_of(const Why& why);

}  // namespace mantissa::cli
