#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"
#include "mantissa/monitor/nonfinite_origin.h"
#include "mantissa/monitor/range_recorder.h"
#include "mantissa/monitor/ranges.h"
#include "mantissa/numerics/format.h"
#include "mantissa/tensor/parameter_list.h"

namespace mantissa::monitor {

/// What a Watch has seen in one step.
struct Sighting {
  int64_t step = 0;  // counted by Watch::step(), from 1
  Ranges ranges;
  NonfiniteOrigin origin;  // of the first value that is not finite; empty: all are
};

struct WatchOptions {
  tensor::ParameterList parameters = {};  // names weights, their gradients and updates
  int64_t every = 50;   // steps: looks at the first and at every so many-th; 1: at all
  bool updates = true;  // of looked-at steps, which takes a copy of every parameter

  /// Called at the end of a step that was looked at, for a record of one's own.
  std::function<void(const Sighting&)> observe = {};
};

/// What the steps that were looked at took more than they would have.
struct WatchCost {
  int64_t steps = 0;      // all
  int64_t looked_at = 0;  // of them
  double cost_s = 0;      // time spent looking
  double steps_s = 0;     // time of all steps, with that

  double share() const { return steps_s > cost_s ? cost_s / (steps_s - cost_s) : 0; }
};

/// Looks at some steps of a training loop: how near all values are to overflow and underflow, by
/// tensor::Scope, and which operation made the first that is not finite. For LibTorch code of any
/// kind; results are the same, bit for bit. Looking at a step about doubles its time, so every 50th
/// costs about 2 %; report() says what it cost.
///
///     monitor::Watch watch({.parameters = parameters});  // 1
///     for (...) {
///       const auto look = watch.step();                  // 2: until the end of this block
///       ... forward, backward ...
///       if (!watch.check(loss)) continue;                // optional: no update from a loss that
///       ... update ...                                   // is not finite, and a look at the next
///     }                                                  // step, while the weights are whole
///     std::cout << watch.report();                       // 3
///
/// Of one thread. It takes no copy of a model: what it counts is read as it is made, and on other
/// devices than the CPU copied, for which it waits. While a step is looked at nothing else may
/// trace (lint, find_nonfinite_origin, find_skip_reason): those throw.
class MANTISSA_API Watch {
 public:
  explicit Watch(WatchOptions options = {});
  ~Watch();

  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// A step, until it goes out of scope.
  class MANTISSA_API Step {
   public:
    ~Step();
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

   private:
    friend class Watch;
    explicit Step(std::shared_ptr<Watch*> watch) : watch_(std::move(watch)) {}
    std::shared_ptr<Watch*> watch_;  // to nothing once the Watch is gone, which ends its step
  };

  /// Throws what went wrong while it looked at the step before, and InvalidArgument while a step
  /// of it is open.
  [[nodiscard]] Step step();

  /// Whether the loss is finite; if not, the next step is looked at, which names the operation only
  /// when it fails too: find_skip_reason runs this one again. Waits for the device. Gradients may
  /// be infinite under a finite loss.
  bool check(const at::Tensor& loss);

  /// The next step is looked at, whatever `every` says.
  void look_at_next() { looks_next_ = true; }

  /// Over all steps that were looked at.
  const Ranges& ranges() const { return ranges_; }

  /// The first of them with a value that is not finite: its step and where that came from.
  const std::optional<Sighting>& first_nonfinite() const { return first_nonfinite_; }

  const WatchCost& cost() const { return cost_; }

  /// A few lines for people: where the first value that is not finite came from, what needs care in
  /// `format`, worst first, and what watching has cost.
  std::string report(numerics::Format format = numerics::Format::fp16, size_t most = 8) const;

 private:
  void end_step() noexcept;

  WatchOptions options_;
  std::shared_ptr<Watch*> self_ = std::make_shared<Watch*>(this);  // what steps hold
  std::unique_ptr<RangeRecorder> recorder_;                        // of a step that is looked at
  bool is_open_ = false;
  bool looks_next_ = false;
  double step_begin_s_ = 0;
  Ranges ranges_;
  std::optional<Sighting> first_nonfinite_;
  WatchCost cost_;
  std::exception_ptr problem_;
};

}  // namespace mantissa::monitor
