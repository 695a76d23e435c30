#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "mantissa/base/api.h"

namespace mantissa {

/// The system calls that files are made of. Everything that must survive a full disk or a crash
/// goes through this interface, so that a test can fail any single call or lose what was not
/// synced. Each call does what the POSIX call behind it does and returns its result, or the
/// negated errno; an interrupted call is repeated. `file.h` turns these into errors with messages.
class MANTISSA_API FileSystem {
 public:
  enum class Open {
    read,
    create,  // for writing at the end; the file must not exist
    append,  // for writing at the end; the file is made when missing
    folder,  // for sync only
  };
  enum class Kind { file, folder };  // a link is a file: it is never followed

  virtual ~FileSystem();

  virtual int open(const std::filesystem::path& path, Open mode) = 0;
  virtual int64_t write(int fd, const void* data, size_t size) = 0;  // may write less
  virtual int64_t read(int fd, void* data, size_t size, int64_t offset) = 0;
  virtual int64_t size(int fd) = 0;
  virtual int truncate(int fd, int64_t size) = 0;
  /// Data and length of a file, or the names of a folder, are on the device when this returns.
  virtual int sync(int fd) = 0;
  virtual int close(int fd) = 0;
  virtual int rename(const std::filesystem::path& from, const std::filesystem::path& to) = 0;
  virtual int remove(const std::filesystem::path& path) = 0;  // a file or an empty folder
  virtual int make_folder(const std::filesystem::path& path) = 0;
  virtual int list(const std::filesystem::path& path, std::vector<std::string>& names) = 0;
  virtual int kind(const std::filesystem::path& path, Kind& kind) = 0;
  virtual int64_t free_bytes(const std::filesystem::path& path) = 0;
};

/// The operating system's files. Thread-safe.
MANTISSA_API FileSystem& posix_files();

}  // namespace mantissa
