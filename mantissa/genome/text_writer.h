#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "mantissa/base/api.h"
#include "mantissa/base/file.h"

namespace mantissa::genome {

enum class TextFormat : uint8_t { plain, bgzip };

/// Text into a file, plain or as blocks of bgzip, that can be cut anywhere flush() has been and
/// continued there: the text then does not tell that it was.
class MANTISSA_API TextWriter {
 public:
  /// Continues at the end of `file`.
  TextWriter(OutputFile file, TextFormat format);

  void write(std::string_view text);

  /// All so far is in the file and on the device; returns the size of the file, in bytes.
  int64_t flush();

  /// Ends the file, with bgzip's end mark, on the device.
  void finish();

 private:
  void write_block(std::string_view text);

  OutputFile file_;
  TextFormat format_;
  std::string waiting_;
};

}  // namespace mantissa::genome
