#pragma once

#include <filesystem>

#include "mantissa/train/loop.h"
#include "mantissa/train/run_config.h"

namespace mantissa::cli {

/// Did the run end with a validation that is no number, or without a step that was applied? Then
/// one line on stderr says so.
bool report_divergence(const train::RunConfig& config, const train::LoopOutcome& outcome,
                       const std::filesystem::path& folder);

}  // namespace mantissa::cli
