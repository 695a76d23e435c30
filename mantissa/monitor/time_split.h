#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "mantissa/base/api.h"

namespace mantissa::monitor {

/// What a step of training does.
enum class Phase : uint8_t {
  data,       // gets its batch: waits for the loader, and hands over
  forward,    // up to the loss on the host
  backward,   // with sums of gradients over microbatches
  optimizer,  // reads and clips gradients, updates weights, their average and the loss scale
  replay,     // runs a skipped step again to say why it was skipped
  other,      // the rest
};

inline constexpr std::array kPhases = {Phase::data,      Phase::forward, Phase::backward,
                                       Phase::optimizer, Phase::replay,  Phase::other};

/// The enumerator, as in records.
MANTISSA_API std::string_view to_string(Phase phase);

/// Seconds of a clock that only goes forward.
MANTISSA_API double steady_seconds();

/// How the time since it was made splits into phases. It begins in `other`; a phase within a phase
/// takes its time from the outer one, so that the phases add up to the whole. A phase costs two
/// readings of a clock. On devices a phase has the time that the host spends in it.
///
///     TimeSplit split;
///     {
///       const TimeSplit::Scope forward(&split, Phase::forward);
///       ...
///     }
///     split.seconds(Phase::forward);
///
/// Of one thread, but for current().
class MANTISSA_API TimeSplit {
 public:
  explicit TimeSplit(double (*now)() = &steady_seconds);

  TimeSplit(const TimeSplit&) = delete;
  TimeSplit& operator=(const TimeSplit&) = delete;

  /// In that phase until its end. Does nothing without a split.
  class MANTISSA_API Scope {
   public:
    Scope(TimeSplit* split, Phase phase);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    TimeSplit* split_;
    Phase outer_;
  };

  /// Until now.
  double seconds(Phase phase) const;

  /// Of all phases.
  double total_s() const;

  /// Of any thread.
  Phase current() const { return current_.load(std::memory_order_relaxed); }

 private:
  void change_to(Phase phase);

  double (*now_)();
  double begin_;
  double since_;  // of the current phase
  std::atomic<Phase> current_ = Phase::other;
  std::array<double, kPhases.size()> seconds_{};  // before that
};

}  // namespace mantissa::monitor
