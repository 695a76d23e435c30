#include "mantissa/genome/fasta.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <htslib/bgzf.h>
#include <htslib/hts_log.h>

#include "mantissa/base/error.h"
#include "mantissa/genome/alphabet.h"
#include "mantissa/genome/quiet_htslib.h"

namespace mantissa::genome {

FastaSink::~FastaSink() = default;

namespace {

constexpr size_t kChunkBytes = size_t{1} << 18;
constexpr size_t kMaxNameBytes = size_t{1} << 16;

// What a byte of a sequence line is read as; 0 for what is no letter.
constexpr std::array<uint8_t, 256> make_read_as() {
  std::array<uint8_t, 256> table{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    table.at(byte) = base_set(static_cast<uint8_t>(byte)) != 0 ? static_cast<uint8_t>(byte) : 0;
  }
  table['U'] = 'T';
  table['u'] = 't';
  table['X'] = table['-'] = table['*'] = 'N';
  table['x'] = 'n';
  return table;
}

constexpr std::array<uint8_t, 256> kReadAs = make_read_as();

bool is_blank(char c) { return c == ' ' || c == '\t'; }

std::string shown(char c) {
  constexpr std::string_view kHex = "0123456789abcdef";
  const auto byte = static_cast<unsigned char>(c);
  if (byte > ' ' && byte < 0x7f) {
    return {'"', c, '"'};
  }
  return {'b', 'y', 't', 'e', ' ', '0', 'x', kHex[byte >> 4], kHex[byte & 15]};
}

// Takes the text in pieces of any size and keeps what a line needs from one piece to the next.
class Parser {
 public:
  Parser(std::string_view file, FastaSink& sink) : file_(file), sink_(sink) {}

  void feed(std::string_view text) {
    while (!text.empty()) {
      if (place_ == Place::line_start) {
        start_line(text.front());
      }
      const size_t end = text.find('\n');
      const std::string_view part = text.substr(0, end);
      if (place_ == Place::name) {
        name_.append(part);
        MANTISSA_CHECK(name_.size() <= kMaxNameBytes, Corruption, where(),
                       ": the line of a name is longer than ", kMaxNameBytes,
                       " bytes; is this a FASTA file?");
      } else {
        sequence(part);
      }
      if (end == std::string_view::npos) {
        return;
      }
      end_line();
      text.remove_prefix(end + 1);
    }
  }

  void finish() {
    if (place_ != Place::line_start) {
      end_line();
    }
    MANTISSA_CHECK(!lines_of_names_.empty(), Corruption, "fasta ", file_,
                   ": holds no sequence; a FASTA file has a line \">name\" before each sequence");
  }

 private:
  enum class Place : uint8_t { line_start, name, sequence };

  std::string where() const { return concat("fasta ", file_, ":", line_); }

  void start_line(char first) {
    ++line_;
    column_ = 0;
    carriage_return_ = false;
    place_ = first == '>' ? Place::name : Place::sequence;
    if (place_ == Place::name) {
      name_.clear();
      return;
    }
    const bool empty = first == '\n' || first == '\r' || is_blank(first);
    MANTISSA_CHECK(empty || !lines_of_names_.empty(), Corruption, where(), ": text, starting with ",
                   shown(first), ", before the first \">\"; ",
                   first == '@'      ? "this looks like FASTQ, convert it to FASTA"
                   : first == '\x1f' ? "this looks like a gzip file that is cut off, get it again"
                                     : "a FASTA file starts with a line \">name\"");
  }

  void end_line() {
    if (place_ == Place::name) {
      begin_record();
    }
    place_ = Place::line_start;
  }

  void begin_record() {
    const std::string_view line = std::string_view(name_).substr(1);
    const std::string name(line.substr(0, line.find_first_of(" \t\r")));
    MANTISSA_CHECK(!name.empty(), Corruption, where(),
                   ": a sequence without a name; write \">name\"");
    for (const char c : name) {
      const auto byte = static_cast<unsigned char>(c);
      MANTISSA_CHECK(byte > ' ' && byte != 0x7f, Corruption, where(), ": ", shown(c),
                     " in the name of a sequence; is this a FASTA file?");
    }
    const auto [entry, is_new] = lines_of_names_.emplace(name, line_);
    MANTISSA_CHECK(is_new, Corruption, where(), ": the name \"", name, "\" was used on line ",
                   entry->second, "; give each sequence a name of its own");
    sink_.begin_record(name);
  }

  void sequence(std::string_view part) {
    letters_.clear();
    for (const char c : part) {
      ++column_;
      const uint8_t letter = kReadAs[static_cast<unsigned char>(c)];
      if (letter != 0 && !carriage_return_) {
        letters_.push_back(letter);
      } else {
        no_letter(c);
      }
    }
    // Blank lines may come before the first name.
    if (!letters_.empty()) {
      MANTISSA_CHECK(!lines_of_names_.empty(), Corruption, where(),
                     ": text before the first \">\"; a FASTA file starts with a line \">name\"");
      sink_.letters(letters_);
    }
  }

  void no_letter(char c) {
    MANTISSA_CHECK(!carriage_return_, Corruption, where(), ": a carriage return at column ",
                   column_ - 1, " that does not end the line; lines end in LF or CRLF");
    if (c == '\r') {
      carriage_return_ = true;
      return;
    }
    MANTISSA_CHECK(is_blank(c), Corruption, where(), ": ", shown(c), " at column ", column_,
                   " is no nucleotide; valid: ACGTU, the IUPAC codes RYSWKMBDHVN, and X - * for N");
  }

  std::string file_;
  FastaSink& sink_;
  Place place_ = Place::line_start;
  uint64_t line_ = 0;  // from 1
  uint64_t column_ = 0;
  bool carriage_return_ = false;
  std::string name_;  // the line, from '>'
  std::vector<uint8_t> letters_;
  std::unordered_map<std::string, uint64_t> lines_of_names_;
};

struct CloseBgzf {
  void operator()(BGZF* file) const { bgzf_close(file); }
};

}  // namespace

void parse_fasta(std::string_view text, std::string_view name, FastaSink& sink) {
  Parser parser(name, sink);
  parser.feed(text);
  parser.finish();
}

void read_fasta(const std::filesystem::path& path, FastaSink& sink) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  MANTISSA_CHECK(std::filesystem::exists(status), IoError, "fasta ", path.string(),
                 ": no such file; check the path");
  MANTISSA_CHECK(!std::filesystem::is_directory(status), IoError, "fasta ", path.string(),
                 ": is a folder; name a FASTA file");
  // Opening a pipe would wait for its writer, for ever if there is none.
  MANTISSA_CHECK(std::filesystem::is_regular_file(status), IoError, "fasta ", path.string(),
                 ": is a pipe or a device; write the sequences to a file first");
  const QuietHtslib quiet;
  // An absolute path, because htslib takes "http:" or "-" at the front for another kind of source.
  const std::string absolute = std::filesystem::absolute(path).string();
  errno = 0;
  const std::unique_ptr<BGZF, CloseBgzf> file(bgzf_open(absolute.c_str(), "r"));
  MANTISSA_CHECK(file != nullptr, IoError, "fasta ", path.string(), ": cannot be opened (",
                 std::strerror(errno), "); check the file and its permissions");
  constexpr int kBgzip = 2;
  MANTISSA_CHECK(bgzf_compression(file.get()) != kBgzip || bgzf_check_EOF(file.get()) != 0,
                 Corruption, "fasta ", path.string(),
                 ": the end mark of a bgzip file is missing; the file is cut off, get it again");
  Parser parser(path.string(), sink);
  std::vector<char> chunk(kChunkBytes);
  while (true) {
    const ssize_t size = bgzf_read(file.get(), chunk.data(), chunk.size());
    MANTISSA_CHECK(size >= 0, Corruption, "fasta ", path.string(),
                   ": reading failed; the file is damaged or cut off, get it again");
    if (size == 0) {
      break;
    }
    parser.feed({chunk.data(), static_cast<size_t>(size)});
  }
  parser.finish();
}

}  // namespace mantissa::genome
