#pragma once

#include <atomic>

namespace mantissa::cli {

/// From the first call on, SIGINT, SIGTERM, SIGHUP and SIGUSR1 (what SLURM sends before a time
/// limit) set the returned flag to the signal's number. One that comes more than a second later
/// ends the process at once with 128 + its number.
const std::atomic<int>& stop_flag();

}  // namespace mantissa::cli
