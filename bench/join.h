#pragma once

#include <vector>

#include <nlohmann/json.hpp>

namespace mantissa::bench {

/// Runs of parts of the figures as one, in the order of the figures' names: the way to measure on a
/// machine that is free for a minute at a time. Of a figure that several have the last one counts,
/// the roofline is that of the first, the share of others the greatest. Throws InvalidArgument
/// unless they are of one machine, one number of threads and one version of LibTorch.
nlohmann::json join_runs(std::vector<nlohmann::json> runs);

}  // namespace mantissa::bench
