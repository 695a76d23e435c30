#include "mantissa/genome/line_reader.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <htslib/bgzf.h>

#include "mantissa/base/error.h"
#include "mantissa/genome/quiet_htslib.h"

namespace mantissa::genome {

struct LineReader::File {
  explicit File(BGZF* opened) : bgzf(opened) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { bgzf_close(bgzf); }

  BGZF* bgzf;
  std::array<char, 1 << 16> buffer{};
  std::string_view rest;  // of the buffer
};

LineReader::LineReader(const std::filesystem::path& path, std::string kind)
    : path_(path.string()), kind_(std::move(kind)) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  MANTISSA_CHECK(std::filesystem::exists(status), IoError, kind_, " ", path_,
                 ": no such file; check the path");
  // A pipe has no second pass, which resuming needs, and opening one would wait for its writer.
  MANTISSA_CHECK(std::filesystem::is_regular_file(status), IoError, kind_, " ", path_,
                 ": is a folder, a pipe or a device; name a file");
  const QuietHtslib quiet;
  // An absolute path, because htslib takes "http:" or "-" at the front for another kind of source.
  errno = 0;
  BGZF* bgzf = bgzf_open(std::filesystem::absolute(path).c_str(), "r");
  MANTISSA_CHECK(bgzf != nullptr, IoError, kind_, " ", path_, ": cannot be opened (",
                 std::strerror(errno), "); check the file and its permissions");
  file_ = std::make_unique<File>(bgzf);
  constexpr int kBgzip = 2;
  MANTISSA_CHECK(bgzf_compression(bgzf) != kBgzip || bgzf_check_EOF(bgzf) != 0, Corruption, kind_,
                 " ", path_,
                 ": the end mark of a bgzip file is missing; the file is cut off, get it again");
}

LineReader::LineReader(LineReader&& other) noexcept = default;
LineReader::~LineReader() = default;

std::string LineReader::where() const { return concat(kind_, " ", path_, ":", line_); }

bool LineReader::fill() {
  const QuietHtslib quiet;
  const ssize_t size = bgzf_read(file_->bgzf, file_->buffer.data(), file_->buffer.size());
  MANTISSA_CHECK(size >= 0, Corruption, kind_, " ", path_, ": reading failed after line ", line_,
                 "; the file is damaged or cut off, get it again");
  file_->rest = {file_->buffer.data(), static_cast<size_t>(size)};
  return size > 0;
}

bool LineReader::begins_with(std::string_view magic) {
  return (!file_->rest.empty() || fill()) && file_->rest.starts_with(magic);
}

bool LineReader::next(std::string& line) {
  line.clear();
  bool any = false;
  while (!file_->rest.empty() || fill()) {
    any = true;
    const size_t end = file_->rest.find('\n');
    line.append(file_->rest.substr(0, end));
    if (end != std::string_view::npos) {
      file_->rest.remove_prefix(end + 1);
      break;
    }
    file_->rest = {};
  }
  line_ += any ? 1 : 0;
  return any;
}

}  // namespace mantissa::genome
