#include "mantissa/genome/variant_reader.h"

#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <utility>

#include <htslib/hts.h>
#include <htslib/kstring.h>
#include <htslib/vcf.h>

#include "mantissa/base/error.h"
#include "mantissa/genome/line_reader.h"
#include "mantissa/genome/quiet_htslib.h"

namespace mantissa::genome {

class VariantReader::Source {
 public:
  Source() = default;
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;
  virtual ~Source() = default;

  virtual bool next(std::string& line) = 0;
  virtual std::string where() const = 0;
};

namespace {

// A kstring_t that frees its memory.
class Text {
 public:
  Text() = default;
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;
  ~Text() { std::free(text_.s); }

  kstring_t* get() { return &text_; }
  std::string_view view() const { return {text_.s, text_.l}; }

 private:
  kstring_t text_ = KS_INITIALIZE;
};

class VcfLines : public VariantReader::Source {
 public:
  explicit VcfLines(LineReader lines) : lines_(std::move(lines)) {}

  bool next(std::string& line) override { return lines_.next(line); }
  std::string where() const override { return lines_.where(); }

 private:
  LineReader lines_;
};

// The header first, line by line, then the records.
class BcfLines : public VariantReader::Source {
 public:
  explicit BcfLines(const std::filesystem::path& path)
      : path_(path.string()),
        file_(hts_open(std::filesystem::absolute(path).c_str(), "r")),
        header_(file_ == nullptr ? nullptr : bcf_hdr_read(file_)),
        record_(bcf_init()) {
    if (header_ == nullptr || bcf_hdr_format(header_, 0, rest_.get()) != 0) {
      close();
      throw Corruption(
          concat("bcf ", path_, ": its header cannot be read; the file is damaged, get it again"));
    }
  }
  BcfLines(const BcfLines&) = delete;
  BcfLines& operator=(const BcfLines&) = delete;
  ~BcfLines() override { close(); }

  bool next(std::string& line) override {
    const QuietHtslib quiet;
    if (position_ < rest_.view().size()) {
      const size_t end = rest_.view().find('\n', position_);
      line.assign(rest_.view().substr(position_, end - position_));
      position_ = end == std::string_view::npos ? rest_.view().size() : end + 1;
      return true;
    }
    const int status = bcf_read(file_, header_, record_);
    if (status == -1) {
      return false;
    }
    ++number_;
    text_.get()->l = 0;
    MANTISSA_CHECK(
        status == 0 && record_->errcode == 0 && vcf_format(header_, record_, text_.get()) == 0,
        Corruption, where(), ": cannot be read; the file is damaged or cut off, get it again");
    line.assign(text_.view());
    while (line.ends_with('\n')) {
      line.pop_back();
    }
    return true;
  }

  std::string where() const override { return concat("bcf ", path_, ": record ", number_); }

 private:
  void close() {
    bcf_destroy(record_);
    if (header_ != nullptr) {
      bcf_hdr_destroy(header_);
    }
    if (file_ != nullptr) {
      hts_close(file_);
    }
  }

  std::string path_;
  htsFile* file_;
  bcf_hdr_t* header_;
  bcf1_t* record_;
  Text rest_;  // of the header, from position_
  size_t position_ = 0;
  Text text_;
  uint64_t number_ = 0;
};

std::unique_ptr<VariantReader::Source> open(const std::filesystem::path& path) {
  LineReader lines(path, "vcf");
  if (!lines.begins_with("BCF\2")) {
    return std::make_unique<VcfLines>(std::move(lines));
  }
  const QuietHtslib quiet;
  return std::make_unique<BcfLines>(path);
}

}  // namespace

VariantReader::VariantReader(const std::filesystem::path& path) : source_(open(path)) {
  std::string line;
  while (source_->next(line)) {
    MANTISSA_CHECK(!header_.empty() || line.starts_with("##fileformat=VCF"), Corruption,
                   source_->where(),
                   ": does not begin with \"##fileformat=VCF\"; is this a VCF or BCF file?");
    MANTISSA_CHECK(line.starts_with('#'), Corruption, source_->where(),
                   ": a record before the line \"#CHROM\"; the header is cut, put it back");
    header_.push_back(line);
    if (line.starts_with("#CHROM")) {
      MANTISSA_CHECK(line.starts_with("#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO"), Corruption,
                     source_->where(),
                     ": the line \"#CHROM\" does not name the eight columns; put ",
                     "tabs between #CHROM POS ID REF ALT QUAL FILTER INFO");
      return;
    }
  }
  throw Corruption(concat("vcf ", path.string(), ": ",
                          header_.empty() ? "is empty" : "has no line \"#CHROM\"",
                          "; the file is cut off, get it again"));
}

VariantReader::~VariantReader() = default;

std::string VariantReader::where() const { return source_->where(); }

bool VariantReader::next(std::string& line) {
  while (source_->next(line)) {
    if (!line.empty() && line != "\r") {
      return true;
    }
  }
  return false;
}

}  // namespace mantissa::genome
