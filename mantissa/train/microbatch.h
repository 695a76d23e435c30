#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "mantissa/base/api.h"
#include "mantissa/train/assembly.h"
#include "mantissa/train/run_config.h"

namespace mantissa::train {

/// What a step takes: the most bytes of live tensors, and the bytes of gradients and their sums,
/// which a step of one forward pass may lack at that moment.
struct StepBytes {
  int64_t peak = 0;
  int64_t gradients = 0;
};

/// Measures a step with so many sequences a forward pass.
using MeasureStep = std::function<StepBytes(int64_t microbatch)>;

struct MicrobatchChoice {
  int64_t microbatch = 0;
  StepBytes bytes;  // of a step with it
};

/// The largest divisor of `batch` with which a step takes at most `memory_bytes`; nothing when one
/// sequence takes more. Measures 1 and 2, then ever larger ones, at most four times the last and
/// none that the line through the last two does not let expect to fit: the peak is the largest of
/// several sums, each a line in the number of sequences, so that it lies on that line or above,
/// but for the whole batch, which is one pass. What is chosen was measured. `measure` is called
/// once for each number; what it measures exceeds the memory by little, but for 2. A throw of
/// tensor::memory::OutOfMemory from it says that more than one does not fit.
MANTISSA_API std::optional<MicrobatchChoice> largest_microbatch(int64_t batch, int64_t memory_bytes,
                                                                const MeasureStep& measure);

/// Steps of a learner of their own, on the first sequences of a loader of their own; the generator
/// stays as it was, so that a run is, bit for bit, the one with that number in its run file.
MANTISSA_API StepBytes measure_step(const RunConfig& config, const RunData& data,
                                    int64_t microbatch);

/// The configuration with the number that "auto" is: by train.memory, or by what the system can
/// give this process at this moment where that is less or not said. Others stay as they are.
/// `told`, where given, becomes one line about it. Throws Error, with the bytes needed, when one
/// sequence does not fit. Call it after use_allocator(), before there is a learner.
MANTISSA_API RunConfig with_microbatch(const RunConfig& config, const RunData& data,
                                       std::string* told = nullptr);

}  // namespace mantissa::train
