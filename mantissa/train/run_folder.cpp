#include "mantissa/train/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "mantissa/base/error.h"
#include "mantissa/base/file.h"

namespace mantissa::train {

RunFolder::RunFolder(std::filesystem::path path) : path_(std::move(path)) {
  const std::string file = (path_ / "run.lock").string();
  lock_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  MANTISSA_CHECK(lock_ >= 0, IoError, file, ": cannot be opened (", std::strerror(errno),
                 "); choose a folder that this user may write to");
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    ::close(lock_);
    throw IoError(concat(path_.string(),
                         ": another process works in this run; wait for it or use another folder"));
  }
}

RunFolder::RunFolder(RunFolder&& other) noexcept
    : path_(std::move(other.path_)), lock_(std::exchange(other.lock_, -1)) {}

RunFolder::~RunFolder() {
  if (lock_ >= 0) {
    ::close(lock_);
  }
}

void RunFolder::require_free(const std::filesystem::path& path) {
  MANTISSA_CHECK(!path_exists(path / "run.toml"), InvalidArgument, path.string(),
                 ": already holds a run; continue it with --resume ", path.string(),
                 " or choose another --out");
}

RunFolder RunFolder::create(const std::filesystem::path& path) {
  create_folders(path);
  RunFolder folder(path);
  require_free(path);
  return folder;
}

void RunFolder::require_run(const std::filesystem::path& path) {
  MANTISSA_CHECK(path_exists(path / "run.toml"), IoError, path.string(),
                 ": holds no run (no run.toml); name the folder that --out named");
}

RunFolder RunFolder::open(const std::filesystem::path& path) {
  require_run(path);
  return RunFolder(path);
}

RunConfig load_run_of(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "run.toml";
  try {
    return load_run_config(file, {});
  } catch (const InvalidArgument& error) {
    throw Corruption(
        concat(file.string(), ": the settings of this run are damaged or were changed (",
               error.what(), "); put the file back, record.jsonl begins with its text"));
  }
}

}  // namespace mantissa::train
