#include "mantissa/train/run_slice.h"

#include <atomic>

#include "mantissa/base/error.h"
#include "mantissa/base/file.h"

namespace mantissa::train {

SliceOutcome run_slice(const RunConfig& config, const std::filesystem::path& folder,
                       const LoopOptions& options) {
  const int64_t interval =
      config.train.checkpoint_every > 0 ? config.train.checkpoint_every : config.train.eval_every;
  SliceOutcome slice;
  int64_t end = 0;
  std::atomic<int> stop{0};
  LoopOptions inner;
  inner.stop = &stop;
  inner.observe = [&](const record::Event& event) {
    if (options.observe) {
      options.observe(event);
    }
    if (const auto* step = std::get_if<record::Step>(&event)) {
      if (slice.first_step == 0) {
        slice.first_step = step->step;
        end = (step->step + interval - 1) / interval * interval;
      }
      slice.last_step = step->step;
    } else if (std::holds_alternative<record::CheckpointSaved>(event)) {
      // One that comes before any step is that of a validation which was still due.
      if (slice.first_step > 0 && slice.last_step >= end) {
        stop = 1;
      }
    }
    if (options.stop != nullptr && options.stop->load() != 0) {
      stop = options.stop->load();
    }
  };
  if (!path_exists(folder / "run.toml")) {
    slice.outcome = start_run(config, folder, inner);
    return slice;
  }
  const RunConfig there = load_run(folder);
  RunConfig expected = config;
  if (config.train.microbatch == kAutoMicrobatch) {
    expected.train.microbatch = there.train.microbatch;
  }
  MANTISSA_CHECK(to_toml(there) == to_toml(expected), InvalidArgument, folder.string(),
                 ": holds a run with other settings; choose another --out");
  slice.outcome = resume_run(folder, inner);
  return slice;
}

}  // namespace mantissa::train
