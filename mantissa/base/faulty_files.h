#pragma once

// For tests: a file system that fails.

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <string>
#include <vector>

#include "mantissa/base/file_system.h"

namespace mantissa {

/// What the n-th call of a FaultyFiles, counted from 0, does instead of its work.
struct Fault {
  enum class Effect {
    once,         // this call fails, the next ones work
    disk_full,    // from here on whatever needs space fails with ENOSPC; a write takes half first
    short_write,  // a write from here on takes one byte; nothing fails
    dead,         // from here on nothing has an effect: the process was killed
  };
  int64_t at_call = -1;  // -1: never
  Effect effect = Effect::once;
  int error = EIO;  // of Effect::once
};

/// Passes every call on to `inner`, apart from the fault.
class FaultyFiles : public FileSystem {
 public:
  explicit FaultyFiles(FileSystem& inner, const Fault& fault = {}) : inner_(inner), fault_(fault) {}

  int64_t num_calls() const { return num_calls_; }

  int open(const std::filesystem::path& path, Open mode) override {
    return call(mode == Open::create || mode == Open::append,
                [&] { return inner_.open(path, mode); });
  }
  int64_t write(int fd, const void* data, size_t size) override {
    const bool first = num_calls_ == fault_.at_call;
    const bool reached = fault_.at_call >= 0 && num_calls_ >= fault_.at_call;
    if (reached && fault_.effect == Fault::Effect::short_write) {
      size = std::min<size_t>(size, 1);
    } else if (first && size > 1 && fault_.effect == Fault::Effect::disk_full) {
      ++num_calls_;
      return inner_.write(fd, data, size / 2);
    }
    return call(true, [&] { return inner_.write(fd, data, size); });
  }
  int64_t read(int fd, void* data, size_t size, int64_t offset) override {
    return call(false, [&] { return inner_.read(fd, data, size, offset); });
  }
  int64_t size(int fd) override {
    return call(false, [&] { return inner_.size(fd); });
  }
  int truncate(int fd, int64_t size) override {
    return call(false, [&] { return inner_.truncate(fd, size); });
  }
  int sync(int fd) override {
    return call(false, [&] { return inner_.sync(fd); });
  }
  int close(int fd) override {
    // Like Linux: the descriptor is gone, whatever the result.
    const int result = inner_.close(fd);
    return call(false, [&] { return result; });
  }
  int rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    return call(false, [&] { return inner_.rename(from, to); });
  }
  int remove(const std::filesystem::path& path) override {
    return call(false, [&] { return inner_.remove(path); });
  }
  int make_folder(const std::filesystem::path& path) override {
    return call(true, [&] { return inner_.make_folder(path); });
  }
  int list(const std::filesystem::path& path, std::vector<std::string>& names) override {
    return call(false, [&] { return inner_.list(path, names); });
  }
  int kind(const std::filesystem::path& path, Kind& kind) override {
    return call(false, [&] { return inner_.kind(path, kind); });
  }
  int64_t free_bytes(const std::filesystem::path& path) override {
    return call(false, [&] { return inner_.free_bytes(path); });
  }

 private:
  template <typename Call>
  auto call(bool needs_space, Call work) -> decltype(work()) {
    const int64_t index = num_calls_++;
    if (fault_.at_call >= 0 && index >= fault_.at_call) {
      if (fault_.effect == Fault::Effect::dead) {
        return -EIO;
      }
      if (fault_.effect == Fault::Effect::disk_full && needs_space) {
        return -ENOSPC;
      }
      if (fault_.effect == Fault::Effect::once && index == fault_.at_call) {
        return -fault_.error;
      }
    }
    return work();
  }

  FileSystem& inner_;
  Fault fault_;
  int64_t num_calls_ = 0;
};

}  // namespace mantissa
