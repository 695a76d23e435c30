#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/base/gpu_energy.h"

namespace mantissa {

/// Where a machine counts energy. Tests plant others.
struct EnergyCounters {
  std::filesystem::path powercap = "/sys/class/powercap";
  std::string nvml = "libnvidia-ml.so.1";  // empty: GPUs are left out
};

/// The energy that the processor packages of this machine take and, with their driver, its GPUs
/// (base/gpu_energy.h): the sum of what can be read. Packages by the counters that Linux shows
/// as powercap zones: Intel's RAPL, and AMD's under the same names. Every `intel-rapl:N` whose name
/// is `package-...` counts; the zones within a package (cores, graphics) are part of it, `psys` is
/// more than the processor, memory (`dram`) is outside of the package: none of these is added.
/// All that runs on the machine is in it.
/// Source: Documentation/power/powercap/powercap.rst and the ABI file sysfs-class-powercap of
/// Linux.
///
///     EnergyMeter meter;
///     ... work, meter.sample() at least once a second ...
///     if (meter.problem().empty()) joules = meter.sample();  // of meter.measured()
class MANTISSA_API EnergyMeter {
 public:
  /// Reads the counters for the first time.
  explicit EnergyMeter(const EnergyCounters& counters = {});

  /// Joules since construction. A counter that went back has wrapped, once, at the zone's
  /// max_energy_range_uj: sample more often than it can wrap twice, which takes a minute or more.
  double sample();

  /// Why nothing is measured, one line; empty when something is. A counter that fails later ends
  /// all: a sum of fewer parts would be another quantity.
  const std::string& problem() const { return problem_; }

  /// Of what the joules are: `1 processor package and 2 GPUs`, `2 GPUs`; empty with a problem.
  std::string measured() const;

  int packages() const { return static_cast<int>(zones_.size()); }
  int gpus() const { return gpus_ ? gpus_->gpus() : 0; }

 private:
  void end(const std::string& problem);

  struct Zone {
    std::filesystem::path folder;
    uint64_t range_uj = 0;  // the counter goes from 0 to here
    uint64_t last_uj = 0;
  };

  std::vector<Zone> zones_;
  std::optional<GpuEnergy> gpus_;
  double joules_ = 0;  // of packages
  double gpu_joules_ = 0;
  std::string problem_;
};

}  // namespace mantissa
