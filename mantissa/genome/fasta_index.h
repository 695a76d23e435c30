#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "mantissa/base/api.h"

namespace mantissa::genome {

struct Contig {
  std::string name;
  uint64_t length = 0;  // bases
};

enum class IndexState : uint8_t {
  present,       // it was there
  made,          // written by this call
  not_possible,  // a plain gzip file or a pipe (no random access), or lines of unequal length
  not_writable,  // the folder cannot be written to
};

/// Sees to it that `<fasta>.fai` (and `.gzi` for bgzip) stand beside a FASTA file, for the sake of
/// samtools, bedtools and browsers. They are written to temporary files and renamed.
MANTISSA_API IndexState ensure_fasta_index(const std::filesystem::path& fasta);

/// Names and lengths out of a `.fai` file: name, length, offset, bases a line, bytes a line.
/// Throws IoError when it cannot be read, Corruption with file and line when it is malformed.
MANTISSA_API std::vector<Contig> read_fasta_index(const std::filesystem::path& fai);

}  // namespace mantissa::genome
