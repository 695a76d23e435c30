#include "mantissa/train/score_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"
#include "mantissa/genome/text_writer.h"
#include "mantissa/genome/variant_reader.h"

namespace mantissa::train {
namespace {

namespace fs = std::filesystem;
using genome::TextFormat;

fs::path with_suffix(const fs::path& path, const char* suffix) { return path.string() + suffix; }

TextFormat format_of(const fs::path& out) {
  const std::string name = out.filename().string();
  const bool is_bgzip = name.ends_with(".vcf.gz") || name.ends_with(".vcf.bgz");
  MANTISSA_CHECK(is_bgzip || name.ends_with(".vcf"), InvalidArgument, "score: output ",
                 out.string(),
                 "; it ends in .vcf, .vcf.gz or .vcf.bgz (bcftools view makes a BCF)");
  return is_bgzip ? TextFormat::bgzip : TextFormat::plain;
}

// How far a scoring is.
struct Saved {
  uint64_t records = 0;
  int64_t bytes = 0;  // of the part
  std::string input;  // xxh3 of the lines so far
  std::string settings;
};

std::optional<Saved> read_saved(const fs::path& path, FileSystem& files) {
  if (!path_exists(path, files)) {
    return std::nullopt;
  }
  try {
    const auto json = nlohmann::json::parse(read_file(path, files));
    return Saved{json.at("records"), json.at("bytes"), json.at("input"), json.at("settings")};
  } catch (const nlohmann::json::exception&) {
    throw Corruption(concat(path.string(), ": is damaged; remove it to begin anew"));
  }
}

void write_saved(const fs::path& path, const Saved& saved, FileSystem& files) {
  nlohmann::ordered_json json;
  json["records"] = saved.records;
  json["bytes"] = saved.bytes;
  json["input"] = saved.input;
  json["settings"] = saved.settings;
  replace_file(path, json.dump() + "\n", files);
}

// Keeps a second process away from the part, however this one ends.
class Lock {
 public:
  explicit Lock(const fs::path& path)
      : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
    MANTISSA_CHECK(fd_ >= 0, IoError, path.string(), ": cannot be opened (", std::strerror(errno),
                   "); choose an output in a folder that this user may write to");
    if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      ::close(fd_);
      throw IoError(concat(path.string(),
                           ": another process writes it; wait for it or choose another output"));
    }
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  ~Lock() { ::close(fd_); }

 private:
  int fd_;
};

class Scoring {
 public:
  Scoring(const fs::path& vcf, const fs::path& out, const VariantScorer& scorer,
          const ScoreFileOptions& options)
      : out_(out),
        part_(with_suffix(out, ".part")),
        progress_(with_suffix(out, ".progress")),
        format_(format_of(out)),
        scorer_(scorer),
        options_(options),
        files_(*options.files),
        reader_(vcf) {
    MANTISSA_CHECK(options.save_every > 0, InvalidArgument,
                   "score: save_every 0; valid: 1 or more");
    MANTISSA_CHECK(!path_exists(out, files_), InvalidArgument, out.string(),
                   ": is there already; choose another output or remove it");
    require_new_fields();
  }

  bool run(const std::function<void(const fs::path&)>& before_rename) {
    const Lock lock(part_);
    genome::TextWriter writer = begin();
    uint64_t since_save = 0;
    for (std::string line; reader_.next(line);) {
      writer.write(scorer_.annotate(line, reader_.where()));
      writer.write("\n");
      count(line);
      if (options_.progress) {
        options_.progress(records_);
      }
      const bool stopped = options_.stop != nullptr && options_.stop->load() != 0;
      if (++since_save >= options_.save_every || stopped) {
        save(writer);
        since_save = 0;
      }
      if (stopped) {
        return false;
      }
    }
    writer.finish();
    before_rename(part_);
    rename_path(part_, out_, files_);
    sync_folder(folder_of(out_), files_);
    remove_tree(progress_, files_);
    return true;
  }

 private:
  void require_new_fields() const {
    const ScoreFields& f = scorer_.fields;
    for (const std::string& line : reader_.header()) {
      for (const std::string* name : {&f.llr, &f.forward, &f.reverse, &f.fp32, &f.markov, &f.kind,
                                      &f.reason, &f.consequence, &f.no_alternative, &f.renamed}) {
        MANTISSA_CHECK(!line.starts_with(concat("##INFO=<ID=", *name, ",")), InvalidArgument,
                       "score: the input has a field ", *name,
                       " already; choose another --prefix for the new ones");
      }
    }
  }

  void count(const std::string& line) {
    ++records_;
    input_.update(line.data(), line.size());
    input_.update("\n", 1);
  }

  genome::TextWriter begin() {
    const std::optional<Saved> saved = read_saved(progress_, files_);
    OutputFile file(part_, FileSystem::Open::append, files_);
    const bool goes_on = saved && file.size_bytes() >= saved->bytes && saved->bytes > 0;
    if (!goes_on) {
      file.truncate(0);
      genome::TextWriter writer(std::move(file), format_);
      write_header(writer);
      return writer;
    }
    MANTISSA_CHECK(saved->settings == options_.settings, InvalidArgument, out_.string(),
                   ": was begun with ", saved->settings, ", this is ", options_.settings,
                   "; repeat the command that began it, or remove ", part_.filename().string());
    std::string line;
    while (records_ < saved->records && reader_.next(line)) {
      count(line);
    }
    MANTISSA_CHECK(records_ == saved->records && hex(input_.value()) == saved->input,
                   InvalidArgument, out_.string(), ": was begun with another input, of which ",
                   saved->records, " records are done; put that back, or remove ",
                   part_.filename().string());
    file.truncate(saved->bytes);
    return {std::move(file), format_};
  }

  void write_header(genome::TextWriter& writer) {
    const std::vector<std::string>& header = reader_.header();
    const bool crlf = header.back().ends_with('\r');
    const auto write = [&](const std::string& line) {
      writer.write(line);
      writer.write(crlf && !line.ends_with('\r') ? "\r\n" : "\n");
    };
    for (size_t i = 0; i + 1 < header.size(); ++i) {
      write(header[i]);
    }
    for (const std::string& line : scorer_.fields.declarations()) {
      write(line);
    }
    if (!options_.description.empty()) {
      write(options_.description);
    }
    write(header.back());
  }

  void save(genome::TextWriter& writer) {
    write_saved(progress_, {records_, writer.flush(), hex(input_.value()), options_.settings},
                files_);
  }

  fs::path out_;
  fs::path part_;
  fs::path progress_;
  TextFormat format_;
  const VariantScorer& scorer_;
  const ScoreFileOptions& options_;
  FileSystem& files_;
  genome::VariantReader reader_;
  Xxh3 input_;
  uint64_t records_ = 0;
};

}  // namespace

bool score_file(const fs::path& vcf, const fs::path& out, const VariantScorer& scorer,
                const ScoreFileOptions& options,
                const std::function<void(const fs::path&)>& before_rename) {
  return Scoring(vcf, out, scorer, options).run(before_rename);
}

}  // namespace mantissa::train
