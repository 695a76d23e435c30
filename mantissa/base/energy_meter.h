#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "mantissa/base/api.h"

namespace mantissa {

/// The energy that the processor packages of this machine take, by the counters that Linux shows
/// as powercap zones: Intel's RAPL, and AMD's under the same names. Every `intel-rapl:N` whose name
/// is `package-...` counts; the zones within a package (cores, graphics) are part of it, `psys` is
/// more than the processor, memory (`dram`) is outside of the package: none of these is added.
/// All that runs on the machine is in it.
/// Source: Documentation/power/powercap/powercap.rst and the ABI file sysfs-class-powercap of
/// Linux.
///
///     EnergyMeter meter;
///     ... work, meter.sample() at least once a second ...
///     if (meter.problem().empty()) joules = meter.sample();
class MANTISSA_API EnergyMeter {
 public:
  /// Reads the counters for the first time. Tests plant another `root`.
  explicit EnergyMeter(const std::filesystem::path& root = "/sys/class/powercap");

  /// Joules since construction. A counter that went back has wrapped, once, at the zone's
  /// max_energy_range_uj: sample more often than it can wrap twice, which takes a minute or more.
  double sample();

  /// Why nothing is measured, one line; empty when it is. A counter that fails later ends it.
  const std::string& problem() const { return problem_; }

  int packages() const { return static_cast<int>(zones_.size()); }

 private:
  struct Zone {
    std::filesystem::path folder;
    uint64_t range_uj = 0;  // the counter goes from 0 to here
    uint64_t last_uj = 0;
  };

  std::vector<Zone> zones_;
  double joules_ = 0;
  std::string problem_;
};

}  // namespace mantissa
