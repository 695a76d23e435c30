#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "mantissa/base/api.h"

namespace mantissa::genome {

/// Receives the sequences of a FASTA file in order, each in pieces.
class MANTISSA_API FastaSink {
 public:
  FastaSink() = default;
  FastaSink(const FastaSink&) = delete;
  FastaSink& operator=(const FastaSink&) = delete;
  virtual ~FastaSink();

  virtual void begin_record(std::string_view name) = 0;

  /// IUPAC codes other than U; lower case is a soft mask.
  virtual void letters(std::span<const uint8_t> letters) = 0;
};

/// Reads a FASTA file of nucleotides, plain, gzip or bgzip, in one pass.
///
/// - A name is the text from '>' to the first blank. Names must be there and differ.
/// - Lines may have any length, end in LF or CRLF, and be empty; blanks are skipped; the last line
///   end may be missing. A record without letters is a sequence of length 0.
/// - U is read as T. X (a masked base), '-' (a gap) and '*' (a missing base) are read as N, so
///   that positions stay those of the file.
/// - Corruption, with file and line: a byte that is none of these, text before the first '>', no
///   record at all, a damaged or cut off gzip or bgzip file. IoError: a file that cannot be read.
MANTISSA_API void read_fasta(const std::filesystem::path& path, FastaSink& sink);

/// The same from memory; `name` takes the file's place in messages.
MANTISSA_API void parse_fasta(std::string_view text, std::string_view name, FastaSink& sink);

}  // namespace mantissa::genome
