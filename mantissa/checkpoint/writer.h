#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/base/file.h"
#include "mantissa/checkpoint/checkpoint.h"

namespace mantissa::checkpoint {

struct WriteOptions {
  int64_t keep_last = 2;  // checkpoints that stay, the one being written among them; the best too
};

struct Saved {
  std::filesystem::path folder;
  int64_t size_bytes = 0;
  std::vector<std::string>
      messages;  // what did not work without harm to the checkpoint; to be shown
};

/// Saves under `directory/step-N`, whole or not at all:
///
///   1. everything is written into a temporary folder, and files and folder are synced;
///   2. it is read back and verified;
///   3. the folder is renamed and `latest` is made to point to it, each followed by a sync;
///   4. earlier checkpoints go, but for `keep_last` and the best. Later ones, of a future that was
///      left by going back to an earlier step, stay.
///
/// A crash or an error at any point leaves the earlier checkpoint or this one for read_latest(). An
/// error in 1 to 3 is thrown (IoError, Corruption from 2), one in 4 is a message. What a killed
/// writer has left is removed first. A step that is there already is replaced with the same care.
/// One writer at a time for a directory. Waits for the devices of the tensors.
MANTISSA_API Saved write(const std::filesystem::path& directory, const Checkpoint& checkpoint,
                         const WriteOptions& options = {}, FileSystem& files = posix_files());

/// Points `best` to the checkpoint of `step`, which then stays until another is marked. Throws
/// InvalidArgument when there is none.
MANTISSA_API void mark_best(const std::filesystem::path& directory, int64_t step,
                            FileSystem& files = posix_files());

}  // namespace mantissa::checkpoint
