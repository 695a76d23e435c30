#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "mantissa/base/bootstrap.h"

namespace mantissa::bench {

using Action = std::function<void()>;

/// Two ways to do the same work, timed against each other.
struct Contest {
  Action ours;
  Action peer;
  double peer_factor = 1;  // what the peer's time is multiplied by, where its work is not the same
  int64_t operations = 1;  // in one call of an action; times are of one of them
  double pause_s = 0;      // before each sample: lets the threads of another process fall asleep
};

/// What was measured, pair by pair, per operation. Times or bytes: less is better.
struct Samples {
  std::vector<double> ours;
  std::vector<double> peer;
  double peer_factor = 1;
  double spent_s = 0;    // on warm-up and samples
  bool scatters = true;  // false: each measurement would give the same

  /// How many times ours is better, pair by pair: peer over ours.
  std::vector<double> ratios() const;
};

struct Sampling {
  double budget_s = 1;          // for warm-up and samples; the least number of pairs may exceed it
  int least_pairs = 3;          // of a contest too long for its budget
  int most_pairs = 15;          // an odd number has a median of its own
  double sample_s = 5e-3;       // actions are repeated until a sample takes as long
  std::function<double()> now;  // seconds; the steady clock when empty
};

/// Runs both sides once or twice to warm up, then in pairs whose order alternates (A B, B A, ...),
/// so that neither a drift of the machine nor what one side leaves in the caches favours a side.
Samples measure(const Contest& contest, const Sampling& sampling);

/// What a row makes of its cases: the geometric mean of their medians, or the least of them.
enum class Summary : uint8_t { worst, geometric_mean };

/// `ratios` by case; the interval is that of a bootstrap of the pairs of each case.
Estimate summarize(Summary summary, const std::vector<std::vector<double>>& ratios, uint64_t seed);

}  // namespace mantissa::bench
