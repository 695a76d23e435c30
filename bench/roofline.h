#pragma once

#include <nlohmann/json.hpp>

namespace mantissa::bench {

/// What the machine can do, the measure of everything else.
///
/// `sgemm` GFLOP/s of LibTorch's FP32 mm, `copy` and `triad` GB/s over arrays of 256 MiB, each on
/// one thread and on `threads`. Bytes are counted as STREAM does (McCalpin, 1995): what is read and
/// written by name, 8 an element copied, 12 an element of a = b + s c. `page_fault_us` is the time
/// of the first touch of 4 KiB, `huge_page_fault_us` that of 2 MiB for which the system was asked
/// to use a huge page.
nlohmann::json measure_roofline(int threads);

}  // namespace mantissa::bench
