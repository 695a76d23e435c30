#include "mantissa/genome/consequence.h"

#include <algorithm>
#include <array>
#include <utility>

#include "mantissa/base/nearest.h"
#include "mantissa/genome/alphabet.h"

namespace mantissa::genome {
namespace {

constexpr std::array kConsequences = {Consequence::synonymous, Consequence::stop_retained,
                                      Consequence::missense,   Consequence::initiator_codon,
                                      Consequence::stop_lost,  Consequence::nonsense};

uint64_t size_of(const CodingSequence& coding) {
  uint64_t size = 0;
  for (const Interval& part : coding.parts) {
    size += part.size();
  }
  return size;
}

// The base that is `offset` bases into a coding sequence, as read.
char base_at(const Genome& genome, const CodingSequence& coding, uint64_t offset) {
  for (const Interval& part : coding.parts) {
    if (offset < part.size()) {
      const bool forward = coding.strand == Strand::forward;
      const uint64_t position = forward ? part.begin + offset : part.end - 1 - offset;
      uint8_t letter = 0;
      genome.fetch({part.contig, position, position + 1}, {&letter, 1});
      return static_cast<char>(forward ? letter : complement(letter));
    }
    offset -= part.size();
  }
  return 'N';
}

}  // namespace

std::string_view to_string(Consequence consequence) {
  constexpr std::array<std::string_view, 6> kNames = {
      "synonymous", "stop_retained", "missense", "initiator_codon", "stop_lost", "nonsense"};
  return kNames.at(static_cast<size_t>(consequence));
}

Consequence parse_consequence(std::string_view name) {
  return parse_enumerator(name, kConsequences, "consequence: unknown");
}

Consequences::Consequences(const Genome& genome, Annotation annotation, const GeneticCode& code)
    : genome_(genome),
      annotation_(std::move(annotation)),
      code_(code),
      parts_(genome.contigs().size()) {
  for (size_t i = 0; i < annotation_.coding.size(); ++i) {
    const CodingSequence& coding = annotation_.coding[i];
    const std::string protein = code_.translate(coding.letters(genome));
    if (protein.find('*') < protein.size() - std::min<size_t>(protein.size(), 1)) {
      ++num_left_out_;
      continue;
    }
    uint64_t offset = 0;
    for (const Interval& part : coding.parts) {
      parts_[coding.contig].push_back({part.begin, part.end, 0, i, offset});
      offset += part.size();
    }
  }
  for (std::vector<Part>& parts : parts_) {
    std::ranges::stable_sort(parts, {}, &Part::begin);
    uint64_t furthest = 0;
    for (Part& part : parts) {
      furthest = part.furthest = std::max(furthest, part.end);
    }
  }
}

std::optional<Consequence> Consequences::of(const Allele& allele) const {
  if (allele.reference.size() != 1 || allele.alternative.size() != 1) {
    return std::nullopt;
  }
  const std::vector<Part>& parts = parts_[allele.contig];
  auto after = std::ranges::upper_bound(parts, allele.begin, {}, &Part::begin);
  std::optional<Consequence> most;
  // std::optional orders nothing before everything.
  while (after != parts.begin() && (after - 1)->furthest > allele.begin) {
    --after;
    if (allele.begin < after->end) {
      most = std::max(most, of(*after, allele));
    }
  }
  return most;
}

std::optional<Consequence> Consequences::of(const Part& part, const Allele& allele) const {
  const CodingSequence& coding = annotation_.coding[part.coding];
  const bool forward = coding.strand == Strand::forward;
  const uint64_t offset =
      part.offset + (forward ? allele.begin - part.begin : part.end - 1 - allele.begin);
  if (offset < coding.phase) {
    return std::nullopt;
  }
  const uint64_t index = (offset - coding.phase) / 3;
  const uint64_t first = coding.phase + 3 * index;
  if (first + 3 > size_of(coding)) {
    return std::nullopt;
  }
  std::string codon;
  for (uint64_t i = 0; i < 3; ++i) {
    codon += base_at(genome_, coding, first + i);
  }
  const char before = code_.amino_acid(codon);
  const auto base = static_cast<uint8_t>(allele.alternative[0]);
  codon[offset - first] = static_cast<char>(forward ? base : complement(base));
  const char after = code_.amino_acid(codon);
  if (before == 'X' || after == 'X') {
    return std::nullopt;
  }
  if (index == 0 && coding.phase == 0) {
    return Consequence::initiator_codon;
  }
  if (before == '*') {
    return after == '*' ? Consequence::stop_retained : Consequence::stop_lost;
  }
  return after == before ? Consequence::synonymous
         : after == '*'  ? Consequence::nonsense
                         : Consequence::missense;
}

}  // namespace mantissa::genome
