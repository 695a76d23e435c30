#include "mantissa/record/reader.h"

#include <string>
#include <variant>

#include "mantissa/base/error.h"

namespace mantissa::record {

Reading read(const std::filesystem::path& path, FileSystem& files) {
  const std::string bytes = read_file(path, files);
  Reading result;
  size_t begin = 0;
  for (size_t end = bytes.find('\n'); end != std::string::npos; end = bytes.find('\n', begin)) {
    const std::string where =
        concat("record ", path.string(), ": line ", result.entries.size() + 1);
    result.entries.push_back(from_json(std::string_view(bytes).substr(begin, end - begin), where));
    begin = end + 1;
  }
  result.dropped_bytes = static_cast<int64_t>(bytes.size() - begin);
  return result;
}

void require_possible(const std::vector<Entry>& entries, const std::string& where) {
  MANTISSA_CHECK(!entries.empty(), Corruption, where, ": has no line; name a run that has begun");
  MANTISSA_CHECK(std::holds_alternative<RunStart>(entries.front().event), Corruption, where,
                 ": line 1: is no run_start, with which the record of a run begins; lines were cut "
                 "off or mixed: put the whole file back");
  int64_t done = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (const auto* step = std::get_if<Step>(&entries[i].event)) {
      MANTISSA_CHECK(step->step > done, Corruption, where, ": line ", i + 1, ": step ", step->step,
                     " comes after step ", done,
                     ", and a run does each once; lines of two records were mixed: put the file "
                     "back");
      done = step->step;
    }
  }
}

}  // namespace mantissa::record
