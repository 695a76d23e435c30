#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "mantissa/train/next_steps.h"
#include "mantissa/train/run_config.h"

namespace mantissa::cli {

// What `mantissa inspect` does with the next steps of a run instead of counting their values. Each
// prints for people or, with `as_json`, one JSON object, and returns the exit code.

/// --twin: layer by layer beside FP32; at most `most` rows for people, all as JSON. 0 also when a
/// value has diverged: that is an answer.
int inspect_twin(const train::RunConfig& config, const train::NextStepsOptions& options,
                 size_t most, bool as_json);

/// --blame: what is wrong with the steps; 1 when something is.
int inspect_blame(const train::RunConfig& config, const train::NextStepsOptions& options,
                  bool as_json);

/// --recommend FILE: what cures the steps. Writes the policy to `file`, reads it back and shows
/// that the steps are well under it. 1 when nothing cures them.
int inspect_recommend(const train::RunConfig& config, const train::NextStepsOptions& options,
                      const std::filesystem::path& file, bool as_json);

}  // namespace mantissa::cli
