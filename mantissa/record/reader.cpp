#include "mantissa/record/reader.h"

#include <string>

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

}  // namespace mantissa::record
