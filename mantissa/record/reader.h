#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
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

/// Throws Corruption for entries that no run writes: none at all, an event before the first
/// run_start, a step that does not come after the one before it. Begins with `where`, which names
/// the record.
MANTISSA_API void require_possible(const std::vector<Entry>& entries, const std::string& where);

}  // namespace mantissa::record
