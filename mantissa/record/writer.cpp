#include "mantissa/record/writer.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "mantissa/base/error.h"

namespace mantissa::record {
namespace {

double now_s() {
  using std::chrono::duration;
  return duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

struct Prefix {
  std::vector<Entry> entries;
  size_t size_bytes = 0;
};

// The lines that belong to the first `step` steps.
Prefix prefix_until(const std::string& bytes, int64_t step, const std::string& where) {
  Prefix prefix;
  int64_t reached = 0;
  for (size_t end = bytes.find('\n'); end != std::string::npos;
       end = bytes.find('\n', prefix.size_bytes)) {
    Entry entry;
    try {
      entry = from_json(std::string_view(bytes).substr(prefix.size_bytes, end - prefix.size_bytes),
                        concat(where, ": line ", prefix.entries.size() + 1));
    } catch (const Corruption&) {
      // Past the checkpoint nothing was synced, and all of it would be dropped anyway.
      if (reached >= step) {
        break;
      }
      throw;
    }
    if (step_of(entry.event) > step || std::holds_alternative<RunEnd>(entry.event)) {
      break;
    }
    if (std::holds_alternative<Step>(entry.event)) {
      reached = std::max(reached, step_of(entry.event));
    }
    prefix.entries.push_back(std::move(entry));
    prefix.size_bytes = end + 1;
  }
  return prefix;
}

}  // namespace

Writer Writer::create(const std::filesystem::path& path, FileSystem& files) {
  Writer writer(OutputFile(path, FileSystem::Open::create, files));
  sync_folder(folder_of(path), files);
  return writer;
}

Writer Writer::resume(const std::filesystem::path& path, int64_t step, FileSystem& files) {
  const std::string bytes = read_file(path, files);
  Prefix prefix = prefix_until(bytes, step, concat("record ", path.string()));
  if (prefix.size_bytes < bytes.size()) {
    replace_file(path, std::string_view(bytes).substr(0, prefix.size_bytes), files);
  }
  Writer writer(OutputFile(path, FileSystem::Open::append, files));
  writer.kept_ = std::move(prefix.entries);
  return writer;
}

void Writer::append(const Entry& entry) { file_.write_whole(to_json(entry) + "\n"); }

void Writer::append(const Event& event) { append(Entry{now_s(), event}); }

void Writer::sync() { file_.sync(); }

}  // namespace mantissa::record
