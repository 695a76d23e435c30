#include "mantissa/base/file_system.h"

#include <cerrno>
#include <cstdio>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace mantissa {
namespace {

// The result of a system call, or the negated errno.
template <typename Call>
auto result_of(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) {
    result = call();
  }
  return result < 0 ? -errno : result;
}

class PosixFiles : public FileSystem {
 public:
  int open(const std::filesystem::path& path, Open mode) override {
    int flags = O_RDONLY;
    switch (mode) {
      case Open::read:
        break;
      case Open::create:
        flags = O_WRONLY | O_CREAT | O_EXCL | O_APPEND;
        break;
      case Open::append:
        flags = O_WRONLY | O_CREAT | O_APPEND;
        break;
      case Open::folder:
        flags = O_RDONLY | O_DIRECTORY;
        break;
    }
    return result_of([&] { return ::open(path.c_str(), flags | O_CLOEXEC, 0666); });
  }

  int64_t write(int fd, const void* data, size_t size) override {
    return result_of([&]() -> int64_t { return ::write(fd, data, size); });
  }

  int64_t read(int fd, void* data, size_t size, int64_t offset) override {
    return result_of([&]() -> int64_t { return ::pread(fd, data, size, offset); });
  }

  int64_t size(int fd) override {
    struct stat status = {};
    const int result = result_of([&] { return ::fstat(fd, &status); });
    if (result < 0) {
      return result;
    }
    return S_ISDIR(status.st_mode) ? -EISDIR : status.st_size;
  }

  int truncate(int fd, int64_t size) override {
    return result_of([&] { return ::ftruncate(fd, size); });
  }

  int sync(int fd) override {
    const int result = result_of([&] { return ::fsync(fd); });
    // A read that checks what was written should come from the device, not from memory.
    (void)::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    return result;
  }

  int close(int fd) override {
    // Linux has closed the descriptor even when it reports an interruption: no repetition.
    const int result = ::close(fd);
    return result < 0 && errno != EINTR ? -errno : 0;
  }

  int rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    return result_of([&] { return ::rename(from.c_str(), to.c_str()); });
  }

  int remove(const std::filesystem::path& path) override {
    return result_of([&] { return std::remove(path.c_str()); });
  }

  int make_folder(const std::filesystem::path& path) override {
    return result_of([&] { return ::mkdir(path.c_str(), 0777); });
  }

  int list(const std::filesystem::path& path, std::vector<std::string>& names) override {
    DIR* folder = ::opendir(path.c_str());
    if (folder == nullptr) {
      return -errno;
    }
    errno = 0;
    for (const dirent* entry = ::readdir(folder); entry != nullptr; entry = ::readdir(folder)) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") {
        names.push_back(name);
      }
      errno = 0;
    }
    const int error = errno;
    ::closedir(folder);
    return -error;
  }

  int kind(const std::filesystem::path& path, Kind& kind) override {
    struct stat status = {};
    const int result = result_of([&] { return ::lstat(path.c_str(), &status); });
    kind = S_ISDIR(status.st_mode) ? Kind::folder : Kind::file;
    return result;
  }

  int64_t free_bytes(const std::filesystem::path& path) override {
    struct statvfs status = {};
    const int result = result_of([&] { return ::statvfs(path.c_str(), &status); });
    return result < 0 ? result : static_cast<int64_t>(status.f_bavail * status.f_frsize);
  }
};

}  // namespace

FileSystem::~FileSystem() = default;

FileSystem& posix_files() {
  static PosixFiles files;
  return files;
}

}  // namespace mantissa
