#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/base/file.h"
#include "mantissa/record/event.h"

namespace mantissa::record {

/// Writes a record line by line. A line reaches the operating system whole before append()
/// returns, so that a killed run has lost none; sync() makes them survive a power failure too.
///
///     auto writer = resumed ? Writer::resume(path, step) : Writer::create(path);
///     writer.append(RunStart{...});
///     for (...) {
///       writer.append(Step{...});
///       if (save) { writer.sync(); checkpoint::write(...); }
///     }
class MANTISSA_API Writer {
 public:
  /// Throws IoError when there is a file already.
  static Writer create(const std::filesystem::path& path, FileSystem& files = posix_files());

  /// Continues the record of a run that goes on from the checkpoint of `step`, so that the record
  /// will have each step once: the first event past `step`, or the run_end, and all that follows
  /// leave the file, atomically. Damage there does no harm; before, it throws Corruption.
  static Writer resume(const std::filesystem::path& path, int64_t step,
                       FileSystem& files = posix_files());

  Writer(Writer&&) noexcept = default;
  Writer& operator=(Writer&&) noexcept = default;

  /// When it throws IoError, nothing of the line is in the file.
  void append(const Entry& entry);
  void append(const Event& event);  // with the current time

  void sync();

  /// What a resumed record began with; empty after create().
  const std::vector<Entry>& kept() const { return kept_; }

 private:
  explicit Writer(OutputFile file) : file_(std::move(file)) {}

  OutputFile file_;
  std::vector<Entry> kept_;
};

}  // namespace mantissa::record
