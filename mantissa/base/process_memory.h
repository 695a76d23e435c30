#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "mantissa/base/api.h"

namespace mantissa {

struct MANTISSA_API ProcessMemory {
  int64_t resident_bytes = 0;   // of this process
  int64_t available_bytes = 0;  // that it can take besides, before the system kills something

  /// What it should take of that: a 32nd part of all is left to libraries, files and others.
  int64_t usable_bytes() const;
};

/// By /proc/meminfo and by the memory controller of each control group around the process (versions
/// 1 and 2; a job of SLURM or a container has one). Nothing where the system does not tell. `root`
/// is "/"; tests plant another.
/// Sources: proc_meminfo(5), proc_pid_statm(5), cgroups(7).
MANTISSA_API std::optional<ProcessMemory> process_memory(const std::filesystem::path& root = "/");

}  // namespace mantissa
