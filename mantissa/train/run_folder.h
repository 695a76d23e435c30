#pragma once

#include <filesystem>

#include "mantissa/base/api.h"
#include "mantissa/train/run_config.h"

namespace mantissa::train {

/// Where a run keeps its files, and the lock that keeps a second process out of it.
///
///     run.toml                     the resolved configuration
///     record.jsonl                 what happened (docs/formats/record.md)
///     events.out.tfevents.mantissa the curves for TensorBoard
///     checkpoints/                 the states (docs/formats/checkpoint.md)
///     summary.json                 the outcome, when the run has ended
class MANTISSA_API RunFolder {
 public:
  /// Throws IoError when the folder holds no run.
  static void require_run(const std::filesystem::path& path);

  /// Throws InvalidArgument when the folder already holds a run. Makes nothing.
  static void require_free(const std::filesystem::path& path);

  /// Makes the folder. Throws InvalidArgument when it already holds a run.
  static RunFolder create(const std::filesystem::path& path);

  /// Throws as require_run, and IoError when another process holds it.
  static RunFolder open(const std::filesystem::path& path);

  RunFolder(RunFolder&& other) noexcept;
  RunFolder& operator=(RunFolder&&) = delete;
  ~RunFolder();

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path config() const { return path_ / "run.toml"; }
  std::filesystem::path record() const { return path_ / "record.jsonl"; }
  std::filesystem::path tensorboard() const { return path_ / "events.out.tfevents.mantissa"; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }
  std::filesystem::path summary() const { return path_ / "summary.json"; }

 private:
  explicit RunFolder(std::filesystem::path path);

  std::filesystem::path path_;
  int lock_;  // file descriptor; the lock ends with the process, however that ends
};

/// What the run in `folder` was started with, from its run.toml. Throws Corruption when that is no
/// longer a valid run file.
MANTISSA_API RunConfig load_run_of(const std::filesystem::path& folder);

}  // namespace mantissa::train
