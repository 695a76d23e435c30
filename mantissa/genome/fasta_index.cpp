#include "mantissa/genome/fasta_index.h"

#include <unistd.h>

#include <array>
#include <charconv>
#include <fstream>
#include <string_view>

#include <htslib/bgzf.h>
#include <htslib/faidx.h>

#include "mantissa/base/error.h"
#include "mantissa/genome/quiet_htslib.h"

namespace mantissa::genome {
namespace {

namespace fs = std::filesystem;

constexpr int kPlain = 0;
constexpr int kBgzip = 2;

fs::path with_suffix(const fs::path& path, const std::string& suffix) {
  return path.string() + suffix;
}

int compression_of(const fs::path& fasta) {
  BGZF* file = bgzf_open(fasta.c_str(), "r");
  if (file == nullptr) {
    return -1;
  }
  const int compression = bgzf_compression(file);
  bgzf_close(file);
  return compression;
}

uint64_t parse_column(std::string_view text, const std::string& where) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  MANTISSA_CHECK(error == std::errc() && end == text.data() + text.size(), Corruption, where,
                 ": \"", text, "\" is no number; delete the index, it is made again");
  return value;
}

}  // namespace

IndexState ensure_fasta_index(const fs::path& path) {
  const QuietHtslib quiet;
  const fs::path fasta = fs::absolute(path);
  const fs::path fai = with_suffix(fasta, ".fai");
  const fs::path gzi = with_suffix(fasta, ".gzi");
  std::error_code error;
  if (!fs::is_regular_file(fasta, error)) {
    return IndexState::not_possible;
  }
  const int compression = compression_of(fasta);
  if (compression != kPlain && compression != kBgzip) {
    return IndexState::not_possible;
  }
  if (fs::exists(fai, error) && (compression == kPlain || fs::exists(gzi, error))) {
    return IndexState::present;
  }
  if (::access(fasta.parent_path().c_str(), W_OK) != 0) {
    return IndexState::not_writable;
  }
  const std::string mark = concat(".part-", ::getpid());
  const fs::path new_fai = with_suffix(fai, mark);
  const fs::path new_gzi = with_suffix(gzi, mark);
  const bool built = fai_build3(fasta.c_str(), new_fai.c_str(),
                                compression == kBgzip ? new_gzi.c_str() : nullptr) == 0;
  if (built && compression == kBgzip) {
    fs::rename(new_gzi, gzi, error);
  }
  if (built && !error) {
    fs::rename(new_fai, fai, error);
  }
  if (built && !error) {
    return IndexState::made;
  }
  const IndexState state = built ? IndexState::not_writable : IndexState::not_possible;
  fs::remove(new_fai, error);
  fs::remove(new_gzi, error);
  return state;
}

std::vector<Contig> read_fasta_index(const fs::path& fai) {
  std::ifstream in(fai);
  MANTISSA_CHECK(in.is_open(), IoError, "fasta index ", fai.string(),
                 ": cannot be opened; check the file and its permissions");
  std::vector<Contig> contigs;
  std::string line;
  for (uint64_t number = 1; std::getline(in, line); ++number) {
    const std::string where = concat("fasta index ", fai.string(), ":", number);
    std::array<std::string_view, 5> columns;
    std::string_view rest = line;
    size_t count = 0;
    for (bool more = true; more; ++count) {
      MANTISSA_CHECK(count < columns.size(), Corruption, where,
                     ": more than 5 columns; delete the index, it is made again");
      const size_t tab = rest.find('\t');
      columns.at(count) = rest.substr(0, tab);
      more = tab != std::string_view::npos;
      rest.remove_prefix(more ? tab + 1 : rest.size());
    }
    MANTISSA_CHECK(count == columns.size() && !columns[0].empty(), Corruption, where, ": ", count,
                   " columns instead of 5; delete the index, it is made again");
    for (size_t i = 2; i < columns.size(); ++i) {
      (void)parse_column(columns.at(i), where);
    }
    contigs.push_back({std::string(columns[0]), parse_column(columns[1], where)});
  }
  return contigs;
}

}  // namespace mantissa::genome
