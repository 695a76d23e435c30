#pragma once

#include <filesystem>
#include <string>

#include "mantissa/checkpoint/reader.h"

namespace mantissa::cli {

/// The checkpoint of a run that `--checkpoint` names: best, latest, or a folder such as step-400.
/// Says on stderr which others were refused. Throws InvalidArgument, beginning with `command`, for
/// what is no name within the run.
checkpoint::Loaded read_checkpoint(const std::filesystem::path& run, const std::string& name,
                                   const char* command);

}  // namespace mantissa::cli
