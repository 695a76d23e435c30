#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "mantissa/base/api.h"

namespace mantissa {

/// The bytes that this process can hold in all before the system kills something: what is resident
/// now plus what is available, by /proc/meminfo and by the memory controller of each control group
/// around the process (versions 1 and 2; a job of SLURM or a container has one). Nothing where the
/// system does not tell. `root` is "/"; tests plant another.
/// Sources: proc_meminfo(5), proc_pid_statm(5), cgroups(7).
MANTISSA_API std::optional<int64_t> process_memory_limit_bytes(
    const std::filesystem::path& root = "/");

}  // namespace mantissa
