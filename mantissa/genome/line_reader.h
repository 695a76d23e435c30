#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "mantissa/base/api.h"

namespace mantissa::genome {

/// The lines of a text file, plain, gzip or bgzip, in one pass: memory is one line and one block.
///
/// `kind` begins each message ("vcf", "gff"). IoError: a file that is missing, a folder, a pipe, or
/// cannot be opened. Corruption: a damaged or cut off gzip or bgzip file.
class MANTISSA_API LineReader {
 public:
  LineReader(const std::filesystem::path& path, std::string kind);
  ~LineReader();
  LineReader(LineReader&& other) noexcept;
  LineReader& operator=(LineReader&&) = delete;

  /// The next line without its line feed (a carriage return stays); false at the end.
  bool next(std::string& line);

  /// `vcf x.vcf:12`, of the line that was read last.
  std::string where() const;

  /// Does the decompressed file begin with `magic`? Before the first next().
  bool begins_with(std::string_view magic);

 private:
  struct File;
  bool fill();

  std::string path_;
  std::string kind_;
  std::unique_ptr<File> file_;
  uint64_t line_ = 0;  // from 1
};

}  // namespace mantissa::genome
