#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/train/device_spec.h"
#include "mantissa/train/footprint.h"
#include "mantissa/train/run_config.h"

namespace mantissa::train {

/// Data parallel training whose ranks share out the state: stages of ZeRO (Rajbhandari et al.,
/// ZeRO, 2020). Each rank has its own sequences, train.batch of them a step.
struct Sharding {
  int64_t ranks = 1;
  int zero = 0;  // shared out: 1 masters, moments, average; 2 gradients too; 3 weights too

  bool operator==(const Sharding&) const = default;
};

inline constexpr std::array kZeroStages = {0, 1, 2, 3};

/// At the moment when one rank has most. What comes of the footprint was counted; what sharding
/// makes of it is arithmetic, for there are no ranks here to measure:
///   - what is shared out is 1 / ranks of the whole, rounded up;
///   - with stage 3 a rank has the weights of one block at a time (`gathers`) in the format that
///     products read, and no casts of its own. Gathering the next one ahead takes as much again;
///   - gradients are reduced in a flat copy (`buckets`): of 25 MiB, as DistributedDataParallel of
///     torch has it, or all where they are less; with stages 2 and 3 of one block at least;
///   - `fragmentation` is what train.allocator "caching" keeps at most, a 32nd part
///     (docs/guides/memory.md). What allocators of devices lose is not known here.
struct RankBytes {
  int64_t weights = 0;
  int64_t masters = 0;
  int64_t moments = 0;
  int64_t average = 0;
  int64_t gradients = 0;    // those that are there at this moment
  int64_t activations = 0;  // what backward needs, and what the forward pass works on
  int64_t casts = 0;        // of FP32 weights to 16 bits
  int64_t temporaries = 0;  // of backward and of the optimizer
  int64_t data = 0;
  int64_t gathers = 0;
  int64_t buckets = 0;
  int64_t fragmentation = 0;

  /// In this order.
  MANTISSA_API std::vector<std::pair<std::string, int64_t>> by_name() const;
  MANTISSA_API int64_t total() const;

  /// What stays from step to step and with gradients: 16 bytes a parameter in FP32 with Adam.
  int64_t state = 0;
};

MANTISSA_API RankBytes rank_bytes(const Footprint& footprint, const Sharding& sharding);

/// A time that no step can stay below on a device that does what its vendor says.
struct StepTime {
  double products_s = 0;  // of the products and attention, each at the peak of its format
  double memory_s = 0;    // of writing and reading once what a step makes, and the state
  std::string missing;    // why products_s is not known: the device lacks the format

  double bound_s() const { return products_s > memory_s ? products_s : memory_s; }
};

/// Of one rank; communication comes besides. `compute` is precision.compute: of a format of which
/// the device has no rate the fastest one is taken, but of this one.
MANTISSA_API StepTime step_time(const Footprint& footprint, const Sharding& sharding,
                                numerics::Format compute, const DeviceSpec& device);

/// Bytes that a rank sends in a step: 2 (N - 1) / N of the gradients, and with stage 3 (N - 1) / N
/// of the weights in each pass once more (Rajbhandari et al., 2020, section 7).
MANTISSA_API double sent_bytes(const Footprint& footprint, const Sharding& sharding);

/// A change of the run or of the sharding, as settings of a run file.
struct Change {
  std::vector<Setting> settings;
  Sharding sharding;
  std::string text;  // as one would say or type it
};

/// The configuration with these settings on top of what the run file and the command line say.
/// Throws InvalidArgument where they have no effect or contradict.
using Configure = std::function<RunConfig(const std::vector<Setting>&)>;

/// `settings` with those of `more` in place of theirs: a key has one value.
MANTISSA_API std::vector<Setting> overridden(std::vector<Setting> settings,
                                             const std::vector<Setting>& more);

struct Remedy {
  Change change;
  RankBytes bytes;  // of the changed run
};

/// The cheapest change with which a rank takes at most `device_bytes`, each checked by footprint().
/// In order: recompute more, a smaller microbatch, masters and moments in fewer bits, a higher
/// stage of ZeRO, more ranks; one of these alone, and if none is enough, one on top of the other.
/// Nothing when not even all of them are.
MANTISSA_API std::optional<Remedy> cheapest_remedy(const Configure& configure,
                                                   const Sharding& sharding, int64_t device_bytes);

/// The settings with which train.microbatch = "auto" fits: the largest divisor of train.batch for
/// which a rank takes at most `device_bytes`, or 1.
MANTISSA_API Setting fitting_microbatch(const Configure& configure, const Sharding& sharding,
                                        int64_t device_bytes);

}  // namespace mantissa::train
