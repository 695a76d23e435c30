#include "bench/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "mantissa/base/error.h"

namespace mantissa::bench {
namespace {

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// One side of a contest.
class Side {
 public:
  Side(const Action& action, const Sampling& sampling, const Contest& contest)
      : action_(action),
        now_(sampling.now ? sampling.now : steady_seconds),
        operations_(static_cast<double>(contest.operations)),
        pause_s_(contest.pause_s) {
    // The first call pays for page faults and caches; where it is too long to be repeated for
    // nothing, it tells the length of a call well enough.
    call_s_ = time(1);
    if (call_s_ * 20 < sampling.budget_s) {
      call_s_ = time(1);
    }
    repeats_ = static_cast<int64_t>(
        std::clamp(std::ceil(sampling.sample_s / std::max(call_s_, 1e-9)), 1.0, 1e6));
  }

  double expected_s() const { return call_s_ * static_cast<double>(repeats_) + pause_s_; }

  // Seconds per operation.
  double sample() {
    if (pause_s_ > 0) {
      std::this_thread::sleep_for(std::chrono::duration<double>(pause_s_));
    }
    return time(repeats_) / (static_cast<double>(repeats_) * operations_);
  }

 private:
  double time(int64_t repeats) {
    const double start = now_();
    for (int64_t i = 0; i < repeats; ++i) {
      action_();
    }
    return now_() - start;
  }

  const Action& action_;
  std::function<double()> now_;
  double operations_;
  double pause_s_;
  double call_s_ = 0;
  int64_t repeats_ = 1;
};

double combine(Summary summary, const std::vector<double>& medians) {
  if (summary == Summary::worst) {
    return *std::min_element(medians.begin(), medians.end());
  }
  double sum = 0;
  for (double value : medians) {
    sum += std::log(value);
  }
  return std::exp(sum / static_cast<double>(medians.size()));
}

}  // namespace

std::vector<double> Samples::ratios() const {
  MANTISSA_ASSERT(ours.size() == peer.size());
  std::vector<double> ratios(ours.size());
  for (size_t i = 0; i < ratios.size(); ++i) {
    ratios[i] = peer[i] * peer_factor / ours[i];
  }
  return ratios;
}

Samples measure(const Contest& contest, const Sampling& sampling) {
  const auto now = sampling.now ? sampling.now : steady_seconds;
  const double start = now();
  Side ours(contest.ours, sampling, contest);
  Side peer(contest.peer, sampling, contest);
  const double left_s = sampling.budget_s - (now() - start);
  const double pairs = std::clamp(left_s / (ours.expected_s() + peer.expected_s()),
                                  static_cast<double>(sampling.least_pairs),
                                  static_cast<double>(sampling.most_pairs));
  Samples samples;
  samples.peer_factor = contest.peer_factor;
  for (int i = 0; i < static_cast<int>(pairs); ++i) {
    if (i % 2 == 0) {
      samples.ours.push_back(ours.sample());
      samples.peer.push_back(peer.sample());
    } else {
      samples.peer.push_back(peer.sample());
      samples.ours.push_back(ours.sample());
    }
  }
  samples.spent_s = now() - start;
  return samples;
}

Estimate summarize(Summary summary, const std::vector<std::vector<double>>& ratios, uint64_t seed) {
  MANTISSA_ASSERT(!ratios.empty());
  return bootstrap(
      ratios,
      [summary](const std::vector<std::vector<double>>& cases) {
        std::vector<double> medians;
        for (const std::vector<double>& of_case : cases) {
          medians.push_back(median(of_case));
        }
        return combine(summary, medians);
      },
      seed);
}

}  // namespace mantissa::bench
