#include "mantissa/checkpoint/layout.h"

#include <algorithm>
#include <charconv>
#include <tuple>

#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"

namespace mantissa::checkpoint {
namespace {

constexpr const char* kTemporaryMark = ".tmp-";
constexpr const char* kOldMark = ".old-";

std::string pointer_line(int64_t step) {
  const std::string name = step_name(step);
  return name + " " + hex(xxh3(name)) + "\n";
}

}  // namespace

std::string step_name(int64_t step) { return concat("step-", step); }

std::optional<int64_t> step_in_name(const std::string& name) {
  const std::string start = "step-";
  const size_t end = std::min(name.find(kTemporaryMark), name.find(kOldMark));
  const std::string stem = name.substr(0, end);
  if (!stem.starts_with(start)) {
    return std::nullopt;
  }
  int64_t step = -1;
  std::from_chars(stem.data() + start.size(), stem.data() + stem.size(), step);
  // One spelling for each step, or `step-007` would be a second checkpoint of step 7.
  return step >= 0 && stem == step_name(step) ? std::optional(step) : std::nullopt;
}

bool is_temporary(const std::string& name) {
  const size_t mark = name.find(kTemporaryMark);
  return mark != std::string::npos &&
         (name.substr(0, mark) == kLatest || name.substr(0, mark) == kBest || step_in_name(name));
}

std::vector<Candidate> candidates(const std::filesystem::path& directory, FileSystem& files) {
  std::vector<Candidate> found;
  if (!folder_exists(directory, files)) {
    return found;
  }
  for (const std::string& name : list_folder(directory, files)) {
    const std::optional<int64_t> step = step_in_name(name);
    if (step && !is_temporary(name)) {
      found.push_back({*step, name, name.find(kOldMark) != std::string::npos});
    }
  }
  std::sort(found.begin(), found.end(), [](const Candidate& a, const Candidate& b) {
    return std::tuple(-a.step, a.is_old, a.name) < std::tuple(-b.step, b.is_old, b.name);
  });
  return found;
}

void write_pointer(const std::filesystem::path& directory, const char* pointer, int64_t step,
                   FileSystem& files) {
  replace_file(directory / pointer, pointer_line(step), files);
}

std::optional<int64_t> read_pointer(const std::filesystem::path& directory, const char* pointer,
                                    FileSystem& files) {
  const std::filesystem::path path = directory / pointer;
  if (!path_exists(path, files)) {
    return std::nullopt;
  }
  const std::string line = read_file(path, files);
  const std::optional<int64_t> step = step_in_name(line.substr(0, line.find(' ')));
  MANTISSA_CHECK(step && line == pointer_line(*step), Corruption, "checkpoint ", path.string(),
                 ": not a step and its checksum; the file is damaged, remove it");
  return step;
}

}  // namespace mantissa::checkpoint
