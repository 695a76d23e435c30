#pragma once

#include <cstdint>
#include <filesystem>

#include "mantissa/base/api.h"
#include "mantissa/data/loader.h"
#include "mantissa/train/assembly.h"
#include "mantissa/train/run_config.h"

namespace mantissa::train {

/// Puts learner, loader and LibTorch's generator where a run begins or, with `checkpoint`, where
/// that was taken: the folder of a run, for its newest one, or that of one checkpoint. Returns the
/// steps done. A checkpoint may have been trained in another precision that keeps FP32 parameters;
/// the loss scale then begins anew. Throws what reading a checkpoint throws, and InvalidArgument
/// for one of another genome.
MANTISSA_API int64_t begin_at(const std::filesystem::path& checkpoint, const RunConfig& config,
                              const RunData& data, Learner& learner, data::Loader& loader);

}  // namespace mantissa::train
