#include "mantissa/base/process_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

namespace mantissa {
namespace {

namespace fs = std::filesystem;

// The number after `key` at the start of a line.
std::optional<int64_t> value_of(const fs::path& file, const std::string& key) {
  std::ifstream in(file);
  std::string line;
  while (std::getline(in, line)) {
    std::istringstream words(line);
    std::string word;
    int64_t value = 0;
    if (words >> word >> value && word == key) {
      return value;
    }
  }
  return std::nullopt;
}

// A file of one number; "max" is none.
std::optional<int64_t> number_in(const fs::path& file) {
  std::ifstream in(file);
  int64_t value = 0;
  return in >> value ? std::optional(value) : std::nullopt;
}

struct Controller {
  const char* mount;
  const char* limit;
  const char* usage;
  const char* cache;  // of files, given back when memory is short: a line of memory.stat
};

constexpr Controller kVersion1 = {"sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                  "memory.usage_in_bytes", "total_inactive_file"};
constexpr Controller kVersion2 = {"sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"};

std::optional<int64_t> available_in_group(const fs::path& folder, const Controller& controller) {
  const auto limit = number_in(folder / controller.limit);
  const auto usage = number_in(folder / controller.usage);
  if (!limit || !usage) {
    return std::nullopt;
  }
  return *limit - *usage + value_of(folder / "memory.stat", controller.cache).value_or(0);
}

// The least that a group of the process, or one around it, has available.
std::optional<int64_t> available_in_groups(const fs::path& root) {
  std::optional<int64_t> least;
  std::ifstream in(root / "proc/self/cgroup");
  std::string line;  // number:controllers:path
  while (std::getline(in, line)) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) {
      continue;
    }
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool is_memory = controllers.find(",memory,") != std::string::npos;
    if (!is_memory && controllers != ",,") {
      continue;
    }
    const Controller& controller = is_memory ? kVersion1 : kVersion2;
    fs::path group = fs::path(line.substr(second + 1)).relative_path();
    while (true) {
      if (const auto bytes = available_in_group(root / controller.mount / group, controller)) {
        least = std::min(least.value_or(*bytes), *bytes);
      }
      if (group.empty()) {
        break;
      }
      group = group.parent_path();
    }
  }
  return least;
}

}  // namespace

int64_t ProcessMemory::usable_bytes() const {
  constexpr int64_t kReserved = 32;  // one part of so many
  return std::max(int64_t{0}, available_bytes - (resident_bytes + available_bytes) / kReserved);
}

std::optional<ProcessMemory> process_memory(const fs::path& root) {
  constexpr int64_t kKibibyte = 1024;
  const auto available = value_of(root / "proc/meminfo", "MemAvailable:");
  std::ifstream statm(root / "proc/self/statm");
  int64_t size_pages = 0;
  int64_t resident_pages = 0;
  if (!available || !(statm >> size_pages >> resident_pages)) {
    return std::nullopt;
  }
  int64_t bytes = *available * kKibibyte;
  bytes = std::max(int64_t{0}, std::min(bytes, available_in_groups(root).value_or(bytes)));
  return ProcessMemory{resident_pages * ::sysconf(_SC_PAGESIZE), bytes};
}

}  // namespace mantissa
