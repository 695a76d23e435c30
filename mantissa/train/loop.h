#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "mantissa/base/api.h"
#include "mantissa/record/event.h"
#include "mantissa/train/run_config.h"

namespace mantissa::train {

struct LoopOptions {
  /// Called with each event after it was recorded, on the training thread.
  std::function<void(const record::Event&)> observe = {};

  /// When it turns non-zero the current step is finished, the state saved, and the loop returns.
  const std::atomic<int>* stop = nullptr;
};

/// What ended a run.
enum class Ending {
  finished,     // train.steps are done
  patience,     // train.patience validations brought no new best
  interrupted,  // `stop`: the state is saved, resume_run goes on
};

struct LoopOutcome {
  Ending ending = Ending::finished;
  record::Summary summary;  // of the whole run, also the peak
  /// As in the summary, of this call alone; empty when it trained nothing.
  std::map<std::string, int64_t> peak_bytes = {};
  std::map<std::string, int64_t> peak_holders = {};
};

/// Trains as `config` says, in a new folder that then holds all of the run (run_folder.h), with
/// tensors in the memory that it says (use_allocator in assembly.h). A train.microbatch of "auto"
/// is decided first (microbatch.h): the run has the number. Throws InvalidArgument when the folder
/// holds a run already, IoError when the disk says no, and Error when the loss of the first step is
/// not finite or train.max_skips steps in a row were skipped; the last checkpoint stays.
MANTISSA_API LoopOutcome start_run(const RunConfig& config, const std::filesystem::path& folder,
                                   const LoopOptions& options = {});

/// Continues the run in `folder` from its newest valid checkpoint, or from its beginning when it
/// has none. On the same machine with the same number of threads the parameters become, bit for
/// bit, those of a run that was never stopped. A run that has ended returns its summary and nothing
/// is written. Throws InvalidArgument when run.toml or the genome has changed since, Corruption
/// when the checkpoints are gone.
MANTISSA_API LoopOutcome resume_run(const std::filesystem::path& folder,
                                    const LoopOptions& options = {});

/// The configuration of the run in `folder`. Throws IoError when it holds no run, InvalidArgument
/// when run.toml has changed since the run began.
MANTISSA_API RunConfig load_run(const std::filesystem::path& folder);

}  // namespace mantissa::train
