#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/cli/arms.h"
#include "mantissa/report/gate.h"
#include "mantissa/report/study.h"
#include "mantissa/train/device_spec.h"

namespace mantissa::cli {

/// What `mantissa compare` was given.
struct CompareOptions {
  std::string run_file;
  std::vector<std::string> precisions = {"fp32", "bf16", "fp16"};
  std::vector<std::string> policies;
  std::vector<std::string> microbatches;
  std::optional<std::string> memory;
  bool attribute = false;
  int64_t seeds = 1;
  std::optional<double> margin;
  std::optional<double> target;
  std::string price;
  std::optional<double> watts;
  std::string powercap;
  std::string require;
  std::vector<std::string> devices;
  std::string out;
  std::vector<std::string> settings;
  bool json = false;
};

/// Throws InvalidArgument for what cannot be, and for a setting that would have no effect.
void check(const CompareOptions& options, const std::vector<Arm>& arms,
           const std::vector<report::Gate>& gates);

/// Throws InvalidArgument for a price that is none.
report::StudyOptions what_is_asked(const CompareOptions& options);

/// Those of `--devices`. Throws what find_device does.
std::vector<train::DeviceSpec> devices_of(const CompareOptions& options);

}  // namespace mantissa::cli
