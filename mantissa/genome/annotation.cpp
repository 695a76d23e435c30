#include "mantissa/genome/annotation.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <span>

#include "mantissa/base/error.h"
#include "mantissa/genome/contig_name.h"
#include "mantissa/genome/line_reader.h"

namespace mantissa::genome {
namespace {

constexpr size_t kColumns = 9;

std::array<std::string_view, kColumns> columns_of(std::string_view line, const std::string& where) {
  std::array<std::string_view, kColumns> columns;
  size_t count = 1;
  for (size_t tab = line.find('\t'); tab != std::string_view::npos; tab = line.find('\t')) {
    MANTISSA_CHECK(count < kColumns, Corruption, where,
                   ": more than 9 columns; a feature of GFF3 has 9, with tabs between them");
    columns.at(count - 1) = line.substr(0, tab);
    line.remove_prefix(tab + 1);
    ++count;
  }
  MANTISSA_CHECK(count == kColumns, Corruption, where, ": ", count,
                 " columns; a feature of GFF3 has 9, with tabs between them");
  columns.back() = line;
  return columns;
}

uint64_t number_of(std::string_view text, const char* column, const std::string& where) {
  uint64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  MANTISSA_CHECK(error == std::errc() && stop == text.data() + text.size(), Corruption, where, ": ",
                 column, " \"", text, "\" is no number; write digits");
  return value;
}

// The value of an attribute, as it stands; empty when it is not there.
std::string_view attribute(std::string_view attributes, std::string_view name) {
  while (!attributes.empty()) {
    const size_t end = std::min(attributes.find(';'), attributes.size());
    std::string_view one = attributes.substr(0, end);
    one.remove_prefix(std::min(one.find_first_not_of(' '), one.size()));
    if (one.starts_with(name) && one.substr(name.size()).starts_with('=')) {
      return one.substr(name.size() + 1);
    }
    attributes.remove_prefix(std::min(end + 1, attributes.size()));
  }
  return {};
}

// A line of a coding sequence.
struct Part {
  Interval bases;
  Strand strand;
  uint64_t phase;
};

Part part_of(const std::array<std::string_view, kColumns>& columns, uint32_t contig,
             const Genome& genome, const std::string& where) {
  const uint64_t first = number_of(columns[3], "start", where);
  const uint64_t last = number_of(columns[4], "end", where);
  const uint64_t length = genome.contigs()[contig].length;
  MANTISSA_CHECK(1 <= first && first <= last && last <= length, Corruption, where, ": ", first,
                 " to ", last, " is not within ", columns[0], ", which has ", length,
                 " bases; is it of this genome?");
  MANTISSA_CHECK(columns[6] == "+" || columns[6] == "-", Corruption, where, ": strand \"",
                 columns[6], "\" of a CDS; valid: + -");
  MANTISSA_CHECK(columns[7] == "0" || columns[7] == "1" || columns[7] == "2", Corruption, where,
                 ": phase \"", columns[7], "\" of a CDS; valid: 0 1 2");
  return {{contig, first - 1, last},
          columns[6] == "+" ? Strand::forward : Strand::reverse,
          number_of(columns[7], "phase", where)};
}

// Collects the lines of each coding sequence.
class Builder {
 public:
  explicit Builder(const Genome& genome) : genome_(genome) {}

  void add(std::string_view line, const std::string& where) {
    const auto columns = columns_of(line, where);
    if (columns[2] != "CDS") {
      return;
    }
    any_ = true;
    std::string_view id = attribute(columns[8], "ID");
    if (id.empty()) {
      id = attribute(columns[8], "Parent");
    }
    // A name that no attribute can have, for a line that stands alone.
    const std::string key = id.empty() ? concat(";", where) : std::string(id);
    const std::optional<uint32_t> contig = find_contig(genome_, columns[0]).contig;
    if (!contig) {
      if (unknown_.emplace(key, 0).second) {
        ++result_.unknown_contig;
      }
      return;
    }
    const Part part = part_of(columns, *contig, genome_, where);
    const auto [entry, is_new] = index_.emplace(key, result_.coding.size());
    if (is_new) {
      result_.coding.push_back(
          {id.empty() ? std::string(columns[0]) : std::string(id), *contig, part.strand, {}, 0});
      phases_.emplace_back();
    }
    CodingSequence& coding = result_.coding[entry->second];
    MANTISSA_CHECK(coding.contig == *contig && coding.strand == part.strand, Corruption, where,
                   ": the coding sequence \"", coding.id,
                   "\" has parts on two contigs or strands; give each its own ID");
    coding.parts.push_back(part.bases);
    phases_[entry->second].emplace(part.bases.begin, part.phase);
    last_line_[entry->second] = where;
  }

  Annotation finish(const std::string& file) {
    MANTISSA_CHECK(any_, Corruption, file, ": has no CDS feature; give an annotation with genes");
    for (size_t i = 0; i < result_.coding.size(); ++i) {
      CodingSequence& coding = result_.coding[i];
      std::ranges::sort(coding.parts, {}, &Interval::begin);
      for (size_t part = 1; part < coding.parts.size(); ++part) {
        MANTISSA_CHECK(coding.parts[part - 1].end <= coding.parts[part].begin, Corruption,
                       last_line_[i], ": the parts of the coding sequence \"", coding.id,
                       "\" overlap; give each coding sequence its own ID");
      }
      if (coding.strand == Strand::reverse) {
        std::ranges::reverse(coding.parts);
      }
      coding.phase = phases_[i].at(coding.parts.front().begin);
    }
    return std::move(result_);
  }

 private:
  const Genome& genome_;
  Annotation result_;
  bool any_ = false;
  std::map<std::string, size_t> index_;
  std::map<std::string, int> unknown_;
  std::vector<std::map<uint64_t, uint64_t>> phases_;  // by begin
  std::map<size_t, std::string> last_line_;
};

}  // namespace

std::string CodingSequence::letters(const Genome& genome) const {
  std::string result;
  for (const Interval& part : parts) {
    std::vector<uint8_t> letters(part.size());
    genome.fetch(part, letters);
    if (strand == Strand::reverse) {
      reverse_complement_(letters);
    }
    result.append(letters.begin(), letters.end());
  }
  return result.substr(std::min<size_t>(phase, result.size()));
}

Annotation read_gff3(const std::filesystem::path& path, const Genome& genome) {
  LineReader lines(path, "gff");
  Builder builder(genome);
  std::string line;
  bool begun = false;
  while (lines.next(line)) {
    if (line.ends_with('\r')) {
      line.pop_back();
    }
    if (!begun) {
      MANTISSA_CHECK(line.starts_with("##gff-version") && line.find('3') != std::string::npos,
                     Corruption, lines.where(),
                     ": does not begin with \"##gff-version 3\"; is this a GFF3 file?");
      begun = true;
    }
    if (line == "##FASTA" || line.starts_with('>')) {
      break;
    }
    if (!line.empty() && line[0] != '#') {
      builder.add(line, lines.where());
    }
  }
  return builder.finish(concat("gff ", path.string()));
}

}  // namespace mantissa::genome
