#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/train/device_spec.h"
#include "mantissa/train/footprint.h"
#include "mantissa/train/plan.h"
#include "mantissa/train/run_config.h"

namespace mantissa::cli {

struct PlannedDevice {
  std::optional<train::DeviceSpec> spec;  // none: memory alone is known
  int64_t memory_bytes = 0;
  std::optional<train::Remedy> remedy;  // where none of the stages fits
  std::vector<bool> fits;               // by stage

  std::string name() const { return spec ? spec->name : "device"; }
  bool fits_any() const;
};

struct PlannedRecomputation {
  std::string level;
  train::RankBytes bytes;  // with the last stage
};

/// All that `mantissa plan` found.
struct Plan {
  std::string run_file;
  train::RunConfig config;
  std::string chosen_microbatch;  // a sentence, where it was "auto"
  train::Footprint footprint;
  int64_t fp32_state = 0;  // of the same run in FP32, without sharding
  int64_t ranks = 1;
  std::vector<int> stages;
  std::vector<train::RankBytes> bytes;  // by stage
  std::vector<PlannedRecomputation> recomputations;
  std::vector<PlannedDevice> devices;
  double utilization = 0;

  train::Sharding last() const { return {ranks, stages.back()}; }
};

std::string text_of(const Plan& plan);

/// One JSON object.
std::string json_of(const Plan& plan);

}  // namespace mantissa::cli
