#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "mantissa/base/api.h"

namespace mantissa::genome {

/// The records of a VCF file, plain, gzip or bgzip, as the lines that they are, or those of a BCF
/// file as htslib writes them in VCF. In one pass, in the order of the file, whatever that is;
/// memory is that of the longest line.
class MANTISSA_API VariantReader {
 public:
  /// Throws what LineReader throws, and Corruption for a file that does not begin with
  /// "##fileformat=VCF" or has no line "#CHROM" before its records.
  explicit VariantReader(const std::filesystem::path& path);
  ~VariantReader();
  VariantReader(const VariantReader&) = delete;
  VariantReader& operator=(const VariantReader&) = delete;

  /// The lines of the header as they are, without line feeds; "#CHROM..." is the last.
  const std::vector<std::string>& header() const { return header_; }

  /// The next record; false at the end. Empty lines are no records.
  bool next(std::string& line);

  /// `vcf x.vcf:12`; of a BCF file `bcf x.bcf: record 3`.
  std::string where() const;

  /// Of a BCF file or lines: what reads them.
  class Source;

 private:
  std::unique_ptr<Source> source_;
  std::vector<std::string> header_;
};

}  // namespace mantissa::genome
