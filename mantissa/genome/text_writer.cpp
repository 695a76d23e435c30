#include "mantissa/genome/text_writer.h"

#include <array>
#include <utility>

#include <htslib/bgzf.h>

#include "mantissa/base/error.h"

namespace mantissa::genome {
namespace {

constexpr size_t kBlockBytes = 0xff00;  // that bgzip puts into a block

}  // namespace

TextWriter::TextWriter(OutputFile file, TextFormat format)
    : file_(std::move(file)), format_(format) {}

void TextWriter::write(std::string_view text) {
  waiting_.append(text);
  size_t done = 0;
  for (; waiting_.size() - done >= kBlockBytes; done += kBlockBytes) {
    write_block(std::string_view(waiting_).substr(done, kBlockBytes));
  }
  waiting_.erase(0, done);
}

int64_t TextWriter::flush() {
  if (!waiting_.empty()) {
    write_block(waiting_);
    waiting_.clear();
  }
  file_.sync();
  return file_.size_bytes();
}

void TextWriter::finish() {
  if (!waiting_.empty()) {
    write_block(waiting_);
    waiting_.clear();
  }
  if (format_ == TextFormat::bgzip) {
    write_block({});  // an empty block is the end mark
  }
  file_.sync();
  file_.close();
}

void TextWriter::write_block(std::string_view text) {
  if (format_ == TextFormat::plain) {
    file_.write(text);
    return;
  }
  constexpr int kDefaultLevel = -1;
  std::array<char, BGZF_MAX_BLOCK_SIZE> block{};
  size_t size = block.size();
  const int status = bgzf_compress(block.data(), &size, text.data(), text.size(), kDefaultLevel);
  MANTISSA_ASSERT(status == 0);
  file_.write(block.data(), size);
}

}  // namespace mantissa::genome
