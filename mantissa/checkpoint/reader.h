#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/base/file.h"
#include "mantissa/checkpoint/checkpoint.h"

namespace mantissa::checkpoint {

struct Loaded {
  Checkpoint checkpoint;
  std::filesystem::path folder;
  std::vector<std::string> messages;  // why later ones were refused; to be shown
};

/// The checkpoint that `latest` names. When it is damaged or missing, the latest one that is whole,
/// and messages about the others. Throws IoError when `directory` holds none, and Corruption,
/// with every reason, when none is whole.
MANTISSA_API Loaded read_latest(const std::filesystem::path& directory,
                                FileSystem& files = posix_files());

/// The one that mark_best() named last. Throws IoError when none was, and Corruption when it is
/// damaged.
MANTISSA_API Loaded read_best(const std::filesystem::path& directory,
                              FileSystem& files = posix_files());

/// One folder, such as `runs/a/checkpoints/step-400`. All its bytes are checked against the
/// manifest, and that against its own checksum, before anything is returned: a flipped bit or a
/// missing byte anywhere is Corruption.
MANTISSA_API Loaded read(const std::filesystem::path& folder, FileSystem& files = posix_files());

/// The same checks without making tensors; a large file goes through a buffer.
MANTISSA_API void verify(const std::filesystem::path& folder, FileSystem& files = posix_files());

/// Is there anything that read_latest() would look at?
MANTISSA_API bool has_checkpoint(const std::filesystem::path& directory,
                                 FileSystem& files = posix_files());

}  // namespace mantissa::checkpoint
