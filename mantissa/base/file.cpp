#include "mantissa/base/file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <random>
#include <system_error>
#include <utility>

#include "mantissa/base/error.h"

namespace mantissa {
namespace {

using std::filesystem::path;

std::string advice(int error, const path& where, FileSystem& files) {
  switch (error) {
    case ENOSPC:
    case EDQUOT: {
      const int64_t free = files.free_bytes(folder_of(where));
      return (free < 0 ? std::string() : concat(free, " bytes are free there, ")) +
             "free some space or choose another folder";
    }
    case EACCES:
    case EPERM:
    case EROFS:
      return "check who may write there, or choose another folder";
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
      return "check the path";
    case EEXIST:
    case ENOTEMPTY:
      return "choose another name";
    case EMFILE:
    case ENFILE:
      return "raise the limit of open files (ulimit -n)";
    default:
      return "check the disk and its messages in the system log";
  }
}

// `result` is what a call of FileSystem returned; passes it on when it is no error.
template <typename Result, typename... What>
Result check(Result result, const path& where, FileSystem& files, const What&... what) {
  if (result < 0) {
    const int error = static_cast<int>(-result);
    throw IoError(concat("file ", where.string(), ": cannot ", concat(what...), ": ",
                         std::generic_category().message(error), "; ",
                         advice(error, where, files)));
  }
  return result;
}

// Runs `body`; when it throws, removes `temporary` as well as it can.
template <typename Body>
void or_remove(const path& temporary, FileSystem& files, Body body) {
  try {
    body();
  } catch (...) {
    files.remove(temporary);
    throw;
  }
}

}  // namespace

path folder_of(const path& where) {
  const path parent = where.parent_path();
  return parent.empty() ? path(".") : parent;
}

path temporary_beside(const path& where) {
  std::random_device device;
  std::array<char, 16> digits{};
  std::snprintf(digits.data(), digits.size(), "%08x", device());
  return path(where).concat(".tmp-").concat(digits.data());
}

std::string read_file(const path& where, FileSystem& files) {
  InputFile file(where, files);
  std::string bytes(static_cast<size_t>(file.size_bytes()), '\0');
  file.read(bytes.data(), bytes.size(), 0);
  return bytes;
}

void replace_file(const path& where, std::string_view bytes, FileSystem& files) {
  const path temporary = temporary_beside(where);
  or_remove(temporary, files, [&] {
    OutputFile file(temporary, FileSystem::Open::create, files);
    file.write(bytes);
    file.sync();
    file.close();
    rename_path(temporary, where, files);
  });
  sync_folder(folder_of(where), files);
}

void rename_path(const path& from, const path& to, FileSystem& files) {
  check(files.rename(from, to), from, files, "rename to ", to.string());
}

void remove_tree(const path& where, FileSystem& files) {
  FileSystem::Kind kind = FileSystem::Kind::file;
  const int status = files.kind(where, kind);
  if (status == -ENOENT) {
    return;
  }
  check(status, where, files, "look at it");
  if (kind == FileSystem::Kind::folder) {
    for (const std::string& name : list_folder(where, files)) {
      remove_tree(where / name, files);
    }
  }
  check(files.remove(where), where, files, "remove it");
}

std::vector<std::string> list_folder(const path& where, FileSystem& files) {
  std::vector<std::string> names;
  check(files.list(where, names), where, files, "list the folder");
  std::sort(names.begin(), names.end());
  return names;
}

void create_folders(const path& where, FileSystem& files) {
  if (where.empty() || folder_exists(where, files)) {
    return;
  }
  const path parent = folder_of(where);
  if (parent != where) {
    create_folders(parent, files);
  }
  const int result = files.make_folder(where);
  if (result == -EEXIST && folder_exists(where, files)) {
    return;  // another process was faster
  }
  MANTISSA_CHECK(result != -EEXIST, IoError, "file ", where.string(),
                 ": is there and is not a folder; choose another path");
  check(result, where, files, "make the folder");
  sync_folder(parent, files);
}

void sync_folder(const path& where, FileSystem& files) {
  const int fd =
      check(files.open(where, FileSystem::Open::folder), where, files, "open the folder");
  const int result = files.sync(fd);
  files.close(fd);
  check(result, where, files, "sync the folder");
}

bool path_exists(const path& where, FileSystem& files) {
  FileSystem::Kind kind = FileSystem::Kind::file;
  const int result = files.kind(where, kind);
  if (result == -ENOENT || result == -ENOTDIR) {
    return false;
  }
  check(result, where, files, "look at it");
  return true;
}

bool folder_exists(const path& where, FileSystem& files) {
  // The slash makes a link to a folder count as that folder.
  FileSystem::Kind kind = FileSystem::Kind::file;
  const int result = files.kind(where / "", kind);
  if (result == -ENOENT || result == -ENOTDIR) {
    return false;
  }
  check(result, where, files, "look at it");
  return kind == FileSystem::Kind::folder;
}

OutputFile::OutputFile(const std::filesystem::path& path, FileSystem::Open mode, FileSystem& files)
    : files_(&files), path_(path), fd_(-1), size_bytes_(0) {
  fd_ = check(files.open(path, mode), path, files, "open it for writing");
  if (mode == FileSystem::Open::append) {
    const int64_t size = files.size(fd_);
    if (size < 0) {
      files.close(std::exchange(fd_, -1));
    }
    size_bytes_ = check(size, path, files, "ask for its size");
  }
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : files_(other.files_),
      path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_bytes_(other.size_bytes_),
      torn_at_(other.torn_at_) {}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  std::swap(files_, other.files_);
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_bytes_, other.size_bytes_);
  std::swap(torn_at_, other.torn_at_);
  return *this;
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) {
    files_->close(fd_);
  }
}

void OutputFile::write(const void* data, size_t size) {
  const char* bytes = static_cast<const char*>(data);
  size_t done = 0;
  while (done < size) {
    int64_t written = files_->write(fd_, bytes + done, size - done);
    if (written == 0) {
      written = -EIO;  // a device that takes nothing and gives no reason would loop for ever
    }
    check(written, path_, *files_, "write ", size - done, " bytes");
    done += static_cast<size_t>(written);
    size_bytes_ += written;
  }
}

void OutputFile::write_whole(std::string_view bytes) {
  if (torn_at_) {
    truncate(*torn_at_);
    torn_at_.reset();
  }
  const int64_t before = size_bytes_;
  try {
    write(bytes);
  } catch (...) {
    if (files_->truncate(fd_, before) == 0) {
      size_bytes_ = before;
    } else {
      torn_at_ = before;
    }
    throw;
  }
}

void OutputFile::truncate(int64_t size) {
  check(files_->truncate(fd_, size), path_, *files_, "cut it to ", size, " bytes");
  size_bytes_ = size;
}

void OutputFile::sync() { check(files_->sync(fd_), path_, *files_, "sync it"); }

void OutputFile::close() {
  check(files_->close(std::exchange(fd_, -1)), path_, *files_, "close it");
}

InputFile::InputFile(const std::filesystem::path& path, FileSystem& files)
    : files_(&files), path_(path), fd_(-1), size_bytes_(0) {
  fd_ = check(files.open(path, FileSystem::Open::read), path, files, "open it");
  const int64_t size = files.size(fd_);
  if (size < 0) {
    files.close(std::exchange(fd_, -1));
  }
  size_bytes_ = check(size, path, files, "ask for its size");
}

InputFile::~InputFile() { files_->close(fd_); }

void InputFile::read(void* data, size_t size, int64_t offset) {
  char* bytes = static_cast<char*>(data);
  size_t done = 0;
  while (done < size) {
    const int64_t position = offset + static_cast<int64_t>(done);
    const int64_t count = files_->read(fd_, bytes + done, size - done, position);
    check(count, path_, *files_, "read ", size - done, " bytes");
    MANTISSA_CHECK(count > 0, Corruption, "file ", path_.string(), ": ends at byte ", position,
                   " where ", size - done, " more were expected; it was cut, use another copy");
    done += static_cast<size_t>(count);
  }
}

}  // namespace mantissa
