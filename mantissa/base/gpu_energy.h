#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mantissa/base/api.h"

namespace mantissa {

/// The energy that NVIDIA's GPUs of this machine take, by the counters of their driver, whoever
/// uses them. The driver's library is opened while running, so that nothing links to it. A GPU
/// older than Volta has no such counter, nor has a part of one (MIG); power that is sampled and
/// added up would be another quantity and takes no counter's place.
/// Source: NVML API reference, nvmlDeviceGetTotalEnergyConsumption: millijoules since the driver
/// was loaded.
class MANTISSA_API GpuEnergy {
 public:
  /// Reads the counters for the first time. Tests plant another `library`.
  explicit GpuEnergy(const std::string& library = "libnvidia-ml.so.1");
  ~GpuEnergy();

  GpuEnergy(const GpuEnergy&) = delete;
  GpuEnergy& operator=(const GpuEnergy&) = delete;

  /// Joules since construction, of all GPUs.
  double sample();

  /// Why nothing is measured, one line; empty when it is: every GPU counts, or none does. A counter
  /// that fails later, or goes back because the driver was loaded again, ends it.
  const std::string& problem() const { return problem_; }

  int gpus() const { return static_cast<int>(gpus_.size()); }

 private:
  struct Library;
  struct Gpu {
    void* handle = nullptr;
    uint64_t last_mj = 0;
  };

  void end(const std::string& problem);

  std::unique_ptr<Library> library_;
  std::vector<Gpu> gpus_;
  double joules_ = 0;
  std::string problem_;
};

}  // namespace mantissa
