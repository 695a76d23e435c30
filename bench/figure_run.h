#pragma once

#include <cstdint>

#include <nlohmann/json.hpp>

#include "bench/row.h"

namespace mantissa::bench {

struct RunOptions {
  CpuClass cpu = CpuClass::other;
  double seconds = 20;  // a figure, times its share
  uint64_t seed = 1;    // of the bootstrap
};

/// Measures a figure: an object with its cases, times or bytes and ratios pair by pair, and its
/// rows, each with ratio, interval, bars and verdict. An unavailable one has the reason alone;
/// so has one that threw, with `failed`.
nlohmann::json run_figure(const Figure& figure, const RunOptions& options);

}  // namespace mantissa::bench
