#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/base/file.h"

/// The names in a folder of checkpoints:
///   step-400/                what the run was after 400 steps
///   step-400.tmp-1b2f09aa/   being written, or left by a killed run
///   step-400.old-77c0d1e4/   the earlier of two with the same step, until the later one is in
///   place latest, best             pointers
namespace mantissa::checkpoint {

inline constexpr const char* kTensorsFile = "tensors.safetensors";
inline constexpr const char* kManifestFile = "manifest.json";
inline constexpr const char* kManifestHashFile = "manifest.xxh3";
inline constexpr const char* kLatest = "latest";
inline constexpr const char* kBest = "best";

MANTISSA_API std::string step_name(int64_t step);

/// Of `step-N`, `step-N.old-...` or `step-N.tmp-...`, with N as step_name() writes it.
MANTISSA_API std::optional<int64_t> step_in_name(const std::string& name);

/// Left by a writer that was killed.
MANTISSA_API bool is_temporary(const std::string& name);

/// A folder that may hold a checkpoint.
struct Candidate {
  int64_t step = 0;
  std::string name;
  bool is_old = false;
};

/// All of a folder, the latest step first, and of one step those that are not old first. Empty
/// when there is no such folder.
MANTISSA_API std::vector<Candidate> candidates(const std::filesystem::path& directory,
                                               FileSystem& files);

/// A pointer is one line: `step-N`, a space, and the xxh3 of `step-N`, so that no flipped bit makes
/// it name another one.
MANTISSA_API void write_pointer(const std::filesystem::path& directory, const char* pointer,
                                int64_t step, FileSystem& files);

/// Nothing when there is no such file. Throws Corruption when it is not such a line.
MANTISSA_API std::optional<int64_t> read_pointer(const std::filesystem::path& directory,
                                                 const char* pointer, FileSystem& files);

}  // namespace mantissa::checkpoint
