#include "mantissa/genome/genome.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "mantissa/base/error.h"
#include "mantissa/base/nearest.h"
#include "mantissa/genome/alphabet.h"
#include "mantissa/genome/fasta.h"

namespace mantissa::genome {
namespace {

constexpr uint8_t kCaseBit = 0x20;

constexpr std::array<std::array<uint8_t, 4>, 256> make_unpacked() {
  constexpr std::string_view kBases = "ACGT";
  std::array<std::array<uint8_t, 4>, 256> table{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    for (unsigned i = 0; i < 4; ++i) {
      table.at(byte).at(i) = static_cast<uint8_t>(kBases[byte >> 2 * i & 3]);
    }
  }
  return table;
}

constexpr std::array<std::array<uint8_t, 4>, 256> kUnpacked = make_unpacked();

void unpack(std::span<const uint8_t> packed, uint64_t begin, std::span<uint8_t> letters) {
  uint64_t position = begin;
  size_t i = 0;
  for (; i < letters.size() && position % 4 != 0; ++i, ++position) {
    letters[i] = kUnpacked[packed[position / 4]][position % 4];
  }
  for (; i + 4 <= letters.size(); i += 4, position += 4) {
    std::memcpy(&letters[i], kUnpacked[packed[position / 4]].data(), 4);
  }
  for (; i < letters.size(); ++i, ++position) {
    letters[i] = kUnpacked[packed[position / 4]][position % 4];
  }
}

// Extends the last run by the base at `position` or starts another.
void add_to_runs(std::vector<Genome::Run>& runs, uint64_t position, uint8_t letter) {
  if (!runs.empty() && runs.back().end == position && runs.back().letter == letter) {
    ++runs.back().end;
  } else {
    runs.push_back({position, position + 1, letter});
  }
}

auto first_run_after(const std::vector<Genome::Run>& runs, uint64_t position) {
  return std::partition_point(runs.begin(), runs.end(),
                              [&](const Genome::Run& run) { return run.end <= position; });
}

uint64_t count_covered(const std::vector<Genome::Run>& runs, const Interval& interval) {
  uint64_t count = 0;
  for (auto run = first_run_after(runs, interval.begin);
       run != runs.end() && run->begin < interval.end; ++run) {
    count += std::min(run->end, interval.end) - std::max(run->begin, interval.begin);
  }
  return count;
}

void require_agreement(const std::vector<Contig>& contigs, const std::filesystem::path& fai) {
  const std::vector<Contig> indexed = read_fasta_index(fai);
  MANTISSA_CHECK(indexed.size() == contigs.size(), Corruption, "fasta index ", fai.string(),
                 ": lists ", indexed.size(), " sequences, the file has ", contigs.size(),
                 "; the file is cut off, or changed since: get it again or delete the index");
  for (size_t i = 0; i < contigs.size(); ++i) {
    MANTISSA_CHECK(indexed[i].name == contigs[i].name && indexed[i].length == contigs[i].length,
                   Corruption, "fasta index ", fai.string(), ":", i + 1, ": lists ",
                   indexed[i].name, " with ", indexed[i].length, " bases, the file has ",
                   contigs[i].name, " with ", contigs[i].length,
                   "; the file is cut off, or changed since: get it again or delete the index");
  }
}

}  // namespace

class Genome::Builder : public FastaSink {
 public:
  explicit Builder(Genome& genome) : genome_(genome) {}

  void begin_record(std::string_view name) override {
    finish_record();
    genome_.by_name_.emplace(name, static_cast<uint32_t>(genome_.contigs_.size()));
    genome_.contigs_.push_back({std::string(name), 0});
    genome_.sequences_.emplace_back();
  }

  void letters(std::span<const uint8_t> letters) override {
    Sequence& sequence = genome_.sequences_.back();
    uint64_t position = genome_.contigs_.back().length;
    sequence.packed.resize((position + letters.size() + 3) / 4);  // zeros, which are A
    for (const uint8_t letter : letters) {
      const uint8_t base = base_number(letter);
      if (base == kNoBase) {
        add_to_runs(sequence.unknown, position, letter & ~kCaseBit);
      } else {
        sequence.packed[position / 4] |= static_cast<uint8_t>(base << 2 * (position % 4));
      }
      if ((letter & kCaseBit) != 0) {
        add_to_runs(sequence.soft_masked, position, 0);
      }
      ++position;
    }
    genome_.contigs_.back().length = position;
  }

  void finish_record() {
    if (!genome_.sequences_.empty()) {
      genome_.sequences_.back().packed.shrink_to_fit();
      genome_.sequences_.back().unknown.shrink_to_fit();
      genome_.sequences_.back().soft_masked.shrink_to_fit();
    }
  }

 private:
  Genome& genome_;
};

Genome Genome::open(const std::filesystem::path& fasta) {
  Genome genome;
  Builder builder(genome);
  read_fasta(fasta, builder);
  builder.finish_record();
  if (ensure_fasta_index(fasta) == IndexState::present) {
    require_agreement(genome.contigs_, fasta.string() + ".fai");
  }
  return genome;
}

Genome Genome::parse(std::string_view fasta) {
  Genome genome;
  Builder builder(genome);
  parse_fasta(fasta, "text", builder);
  builder.finish_record();
  return genome;
}

uint32_t Genome::index_of(std::string_view name) const {
  const std::optional<uint32_t> contig = find(name);
  if (!contig) {
    std::vector<std::string> names;
    for (const Contig& known : contigs_) {
      names.push_back(known.name);
    }
    // An assembly may have a million contigs: only a near name is worth showing then.
    constexpr size_t kMaxListed = 20;
    const bool listed = names.size() <= kMaxListed || !nearest(name, names).empty();
    throw InvalidArgument(
        concat("genome: no contig \"", name, "\"",
               listed ? suggestion(name, names)
                      : concat("; it has ", names.size(), ", the first is ", names.front())));
  }
  return *contig;
}

std::optional<uint32_t> Genome::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? std::nullopt : std::optional(found->second);
}

void Genome::require_within(const Interval& interval) const {
  MANTISSA_CHECK(interval.contig < contigs_.size(), InvalidArgument, "genome: contig ",
                 interval.contig, " of ", contigs_.size(), "; valid: 0 to ", contigs_.size() - 1);
  const Contig& contig = contigs_[interval.contig];
  MANTISSA_CHECK(interval.begin <= interval.end && interval.end <= contig.length, InvalidArgument,
                 "genome: interval ", interval.begin, " to ", interval.end, " of ", contig.name,
                 "; valid: 0 to ", contig.length);
}

void Genome::fetch(const Interval& interval, std::span<uint8_t> letters) const {
  require_within(interval);
  MANTISSA_CHECK(letters.size() == interval.size(), InvalidArgument, "fetch: room for ",
                 letters.size(), " letters, the interval has ", interval.size(),
                 "; give as much as it has");
  const Sequence& sequence = sequences_[interval.contig];
  unpack(sequence.packed, interval.begin, letters);
  for (auto run = first_run_after(sequence.unknown, interval.begin);
       run != sequence.unknown.end() && run->begin < interval.end; ++run) {
    const uint64_t begin = std::max(run->begin, interval.begin);
    const uint64_t end = std::min(run->end, interval.end);
    std::ranges::fill(letters.subspan(begin - interval.begin, end - begin), run->letter);
  }
}

const std::vector<Genome::Run>& Genome::unknown_runs(uint32_t contig) const {
  require_within({contig, 0, 0});
  return sequences_[contig].unknown;
}

const std::vector<Genome::Run>& Genome::soft_masked_runs(uint32_t contig) const {
  require_within({contig, 0, 0});
  return sequences_[contig].soft_masked;
}

uint64_t Genome::count_soft_masked(const Interval& interval) const {
  require_within(interval);
  return count_covered(sequences_[interval.contig].soft_masked, interval);
}

uint64_t Genome::count_unknown(const Interval& interval) const {
  require_within(interval);
  return count_covered(sequences_[interval.contig].unknown, interval);
}

uint64_t Genome::num_bases() const {
  uint64_t count = 0;
  for (const Contig& contig : contigs_) {
    count += contig.length;
  }
  return count;
}

uint64_t Genome::memory_bytes() const {
  uint64_t bytes = 0;
  for (const Sequence& sequence : sequences_) {
    bytes += sequence.packed.capacity() +
             sizeof(Run) * (sequence.unknown.capacity() + sequence.soft_masked.capacity());
  }
  return bytes;
}

}  // namespace mantissa::genome
