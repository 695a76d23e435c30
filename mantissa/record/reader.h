#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/base/file.h"
#include "mantissa/record/event.h"

namespace mantissa::record {

struct Reading {
  std::vector<Entry> entries;
  int64_t dropped_bytes = 0;  // of a last line without an end: its writer was killed
};

/// Throws IoError when the file cannot be read, and Corruption with the number of the line when one
/// that has an end is damaged.
MANTISSA_API Reading read(const std::filesystem::path& path, FileSystem& files = posix_files());

}  // namespace mantissa::record
