#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/base/file_system.h"

namespace mantissa {

// Every function here throws IoError when the system says no: which path, what failed, the
// system's words, and what to do; on a full disk also how many bytes were needed and are free.

MANTISSA_API std::string read_file(const std::filesystem::path& path,
                                   FileSystem& files = posix_files());

/// Makes `bytes` the content of `path`, whole or not at all, also through a crash: writes a
/// temporary file in the same folder, syncs it, renames it and syncs the folder.
MANTISSA_API void replace_file(const std::filesystem::path& path, std::string_view bytes,
                               FileSystem& files = posix_files());

/// Replaces a file at `to`. Not durable before sync_folder() of the folder.
MANTISSA_API void rename_path(const std::filesystem::path& from, const std::filesystem::path& to,
                              FileSystem& files = posix_files());

/// Removes a file or a folder with all it holds; links are removed, not followed. Nothing there is
/// no error.
MANTISSA_API void remove_tree(const std::filesystem::path& path, FileSystem& files = posix_files());

/// The names in a folder, sorted.
MANTISSA_API std::vector<std::string> list_folder(const std::filesystem::path& path,
                                                  FileSystem& files = posix_files());

/// Makes a folder and those above it; durable. One that is there already is no error.
MANTISSA_API void create_folders(const std::filesystem::path& path,
                                 FileSystem& files = posix_files());

/// Makes names that were added to, taken from or renamed in the folder survive a crash.
MANTISSA_API void sync_folder(const std::filesystem::path& path, FileSystem& files = posix_files());

MANTISSA_API bool path_exists(const std::filesystem::path& path, FileSystem& files = posix_files());
MANTISSA_API bool folder_exists(const std::filesystem::path& path,
                                FileSystem& files = posix_files());

/// The folder that holds `path`; "." for a bare name.
MANTISSA_API std::filesystem::path folder_of(const std::filesystem::path& path);

/// `path` with `.tmp-` and eight random hexadecimal digits: a name beside it that nobody has.
MANTISSA_API std::filesystem::path temporary_beside(const std::filesystem::path& path);

/// A file that is being written. The destructor closes it without a word about errors: call
/// sync() and close() to know that the bytes have arrived.
class MANTISSA_API OutputFile {
 public:
  /// `mode` is Open::create or Open::append.
  OutputFile(const std::filesystem::path& path, FileSystem::Open mode,
             FileSystem& files = posix_files());
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;
  ~OutputFile();

  void write(const void* data, size_t size);
  void write(std::string_view bytes) { write(bytes.data(), bytes.size()); }

  /// All of `bytes`; when that fails, the file is cut back to what it was, so that what follows
  /// is never glued to a torn piece. When even the cut fails, the next call tries it again first.
  void write_whole(std::string_view bytes);

  /// Cuts the file, or fills it with zeros, to `size` bytes.
  void truncate(int64_t size);
  void sync();
  void close();

  int64_t size_bytes() const { return size_bytes_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  FileSystem* files_;
  std::filesystem::path path_;
  int fd_;
  int64_t size_bytes_;
  std::optional<int64_t> torn_at_;  // where a piece begins that could not be cut
};

/// A file that is being read, at any position.
class MANTISSA_API InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path, FileSystem& files = posix_files());
  ~InputFile();

  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  /// Exactly `size` bytes from `offset`. Throws Corruption when the file ends before.
  void read(void* data, size_t size, int64_t offset);

  int64_t size_bytes() const { return size_bytes_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  FileSystem* files_;
  std::filesystem::path path_;
  int fd_;
  int64_t size_bytes_;
};

}  // namespace mantissa
