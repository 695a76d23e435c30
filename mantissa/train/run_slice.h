#pragma once

#include <cstdint>
#include <filesystem>

#include "mantissa/base/api.h"
#include "mantissa/train/loop.h"

namespace mantissa::train {

/// Steps from `first_step` to `last_step`; none when that is 0.
struct SliceOutcome {
  LoopOutcome outcome;
  int64_t first_step = 0;
  int64_t last_step = 0;
};

/// Trains the run of `config` in `folder` on until the next checkpoint that it saves anyway, after
/// train.checkpoint_every steps (train.eval_every when that is 0), or its end: starts it when the
/// folder is empty, else goes on from its last checkpoint. So runs can take turns in one process,
/// each alone in memory while it is trained, and each becomes, bit for bit, what start_run would
/// have made of it. The ending is `interrupted` while steps are left. Throws what start_run and
/// resume_run do, and InvalidArgument when the folder holds a run of another configuration.
MANTISSA_API SliceOutcome run_slice(const RunConfig& config, const std::filesystem::path& folder,
                                    const LoopOptions& options = {});

}  // namespace mantissa::train
