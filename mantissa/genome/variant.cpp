#include "mantissa/genome/variant.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "mantissa/base/error.h"
#include "mantissa/genome/alphabet.h"
#include "mantissa/genome/contig_name.h"

namespace mantissa::genome {
namespace {

constexpr size_t kColumns = 8;  // to INFO

struct ReasonText {
  std::string_view name;
  std::string_view sentence;
};

constexpr std::array<ReasonText, 15> kReasons = {{
    {"no_alternative", "ALT is \".\""},
    {"same_as_reference", "ALT is REF again"},
    {"missing_alternative", "an alternative is \".\""},
    {"symbolic", "a symbolic alternative, such as <DEL>: its sequence is not known"},
    {"overlapping_deletion", "\"*\": gone by a deletion of another record"},
    {"breakend", "a breakend: its sequence is not known"},
    {"unreadable_allele", "REF or ALT holds what is no nucleotide"},
    {"contig_missing", "the FASTA has no such contig, with or without \"chr\""},
    {"out_of_contig", "POS is 0 or REF reaches beyond the end of the contig"},
    {"reference_mismatch", "REF is not what the FASTA has there"},
    {"ambiguous_reference", "REF or the FASTA has an IUPAC code for several bases there"},
    {"ambiguous_alternative", "ALT has an IUPAC code for several bases"},
    {"too_long", "it does not fit into half of a window; a longer --context takes it"},
    {"contig_end", "no window at the end of the contig shows a difference"},
    {"not_finite", "the model's result is NaN or infinite"},
}};

bool is_symbolic(std::string_view alt) { return alt.front() == '<' && alt.back() == '>'; }

bool is_breakend(std::string_view alt) {
  return alt.find_first_of("[]") != std::string_view::npos ||
         (alt.size() > 1 && (alt.front() == '.' || alt.back() == '.'));
}

bool is_iupac(std::string_view letters) {
  return std::ranges::all_of(letters,
                             [](char c) { return base_set(static_cast<uint8_t>(c)) != 0; });
}

bool is_definite(std::string_view letters) {
  return std::ranges::all_of(
      letters, [](char c) { return base_number(static_cast<uint8_t>(c)) != kNoBase; });
}

// A, C, G, T from letters that are definite.
std::string bases_of(std::string_view letters) {
  std::string bases;
  for (const char c : letters) {
    bases += "ACGT"[base_number(static_cast<uint8_t>(c))];
  }
  return bases;
}

std::string fetch(const Genome& genome, const Interval& interval) {
  std::string letters(interval.size(), '\0');
  genome.fetch(interval, {reinterpret_cast<uint8_t*>(letters.data()), letters.size()});
  return letters;
}

uint8_t base_at(const Genome& genome, uint32_t contig, uint64_t position) {
  uint8_t letter = 0;
  genome.fetch({contig, position, position + 1}, {&letter, 1});
  return letter;
}

// Of an insertion or deletion: as far left as it goes, and how much further right it would go.
void slide_(const Genome& genome, Allele& allele) {
  std::string& bases = allele.reference.empty() ? allele.alternative : allele.reference;
  while (allele.begin > 0 &&
         base_at(genome, allele.contig, allele.begin - 1) == static_cast<uint8_t>(bases.back())) {
    std::rotate(bases.begin(), bases.end() - 1, bases.end());
    --allele.begin;
  }
  const uint64_t length = genome.contigs()[allele.contig].length;
  const uint64_t after = allele.begin + allele.reference.size();
  while (after + allele.slide < length &&
         base_at(genome, allele.contig, after + allele.slide) ==
             static_cast<uint8_t>(bases[allele.slide % bases.size()])) {
    ++allele.slide;
  }
}

Allele normalized(const Genome& genome, uint32_t contig, uint64_t begin, std::string reference,
                  std::string alternative) {
  while (!reference.empty() && !alternative.empty() && reference.back() == alternative.back()) {
    reference.pop_back();
    alternative.pop_back();
  }
  const auto [differs, other] =
      std::mismatch(reference.begin(),
                    reference.begin() +
                        static_cast<std::ptrdiff_t>(std::min(reference.size(), alternative.size())),
                    alternative.begin());
  const auto shared = static_cast<size_t>(differs - reference.begin());
  Allele allele{contig, begin + shared, reference.substr(shared), alternative.substr(shared)};
  if (allele.reference.empty() || allele.alternative.empty()) {
    slide_(genome, allele);
  }
  return allele;
}

// By the text alone; nothing where it depends on the bases.
std::optional<CheckedAllele> not_spelled_out(std::string_view alt) {
  const auto is = [](AlleleKind kind, Unscored reason) { return CheckedAllele{kind, reason, {}}; };
  if (alt == "*") {
    return is(AlleleKind::overlapping_deletion, Unscored::overlapping_deletion);
  }
  if (alt == ".") {
    return is(AlleleKind::missing, Unscored::missing_alternative);
  }
  if (is_symbolic(alt)) {
    return is(AlleleKind::symbolic, Unscored::symbolic);
  }
  if (is_breakend(alt)) {
    return is(AlleleKind::breakend, Unscored::breakend);
  }
  if (!is_iupac(alt)) {
    return is(AlleleKind::unreadable, Unscored::unreadable_allele);
  }
  return std::nullopt;
}

AlleleKind kind_of(std::string_view reference, std::string_view alternative) {
  if (reference.size() == alternative.size()) {
    return reference.size() == 1 ? AlleleKind::snv : AlleleKind::mnv;
  }
  return reference.empty()     ? AlleleKind::insertion
         : alternative.empty() ? AlleleKind::deletion
                               : AlleleKind::complex;
}

// The kind from the letters as they are, for what is not compared with a genome.
AlleleKind kind_of_text(std::string_view reference, std::string_view alternative) {
  const auto same = [](char a, char b) {
    return base_set(static_cast<uint8_t>(a)) == base_set(static_cast<uint8_t>(b));
  };
  while (!reference.empty() && !alternative.empty() && same(reference.back(), alternative.back())) {
    reference.remove_suffix(1);
    alternative.remove_suffix(1);
  }
  while (!reference.empty() && !alternative.empty() &&
         same(reference.front(), alternative.front())) {
    reference.remove_prefix(1);
    alternative.remove_prefix(1);
  }
  return reference.empty() && alternative.empty() ? AlleleKind::reference
                                                  : kind_of(reference, alternative);
}

// What speaks against every alternative of a record.
std::optional<Unscored> check_reference(const Genome& genome, std::optional<uint32_t> contig,
                                        const VariantLine& variant) {
  const std::string_view reference = variant.reference;
  if (!is_iupac(reference)) {
    return Unscored::unreadable_allele;
  }
  if (!contig) {
    return Unscored::contig_missing;
  }
  const uint64_t length = genome.contigs()[*contig].length;
  if (variant.position == 0 || reference.size() > length ||
      variant.position - 1 > length - reference.size()) {
    return Unscored::out_of_contig;
  }
  const uint64_t begin = variant.position - 1;
  const std::string letters = fetch(genome, {*contig, begin, begin + reference.size()});
  for (size_t i = 0; i < letters.size(); ++i) {
    const uint8_t own = base_set(static_cast<uint8_t>(letters[i]));
    const uint8_t said = base_set(static_cast<uint8_t>(reference[i]));
    if ((own & said) == 0) {
      return Unscored::reference_mismatch;
    }
  }
  return is_definite(letters) && is_definite(reference)
             ? std::nullopt
             : std::optional(Unscored::ambiguous_reference);
}

}  // namespace

std::string_view to_string(AlleleKind kind) {
  constexpr std::array<std::string_view, 11> kNames = {
      "snv",      "mnv",       "insertion",
      "deletion", "complex",   "reference",
      "missing",  "symbolic",  "overlapping_deletion",
      "breakend", "unreadable"};
  return kNames.at(static_cast<size_t>(kind));
}

std::string_view to_string(Unscored reason) {
  return kReasons.at(static_cast<size_t>(reason)).name;
}

std::string_view explain(Unscored reason) {
  return kReasons.at(static_cast<size_t>(reason)).sentence;
}

VariantLine parse_variant(std::string_view line, std::string_view where) {
  if (line.ends_with('\r')) {
    line.remove_suffix(1);
  }
  std::array<std::string_view, kColumns> columns;
  size_t begin = 0;
  for (size_t i = 0; i < kColumns; ++i) {
    const size_t tab = line.find('\t', begin);
    MANTISSA_CHECK(tab != std::string_view::npos || i + 1 == kColumns, Corruption, where, ": ",
                   i + 1, " columns; a record of a VCF file has 8 or more, with tabs between them");
    columns.at(i) = line.substr(begin, tab == std::string_view::npos ? tab : tab - begin);
    MANTISSA_CHECK(!columns.at(i).empty(), Corruption, where, ": column ", i + 1,
                   " is empty; \".\" stands for what is missing");
    begin = tab + 1;
  }
  VariantLine variant;
  variant.chrom = columns[0];
  const std::string_view text = columns[1];
  const auto [stop, error] =
      std::from_chars(text.data(), text.data() + text.size(), variant.position);
  MANTISSA_CHECK(error == std::errc() && stop == text.data() + text.size(), Corruption, where,
                 ": POS \"", text, "\" is no position; positions count from 1");
  variant.reference = columns[3];
  variant.info = columns[7];
  if (columns[4] != ".") {
    std::string_view rest = columns[4];
    for (bool more = true; more;) {
      const size_t comma = rest.find(',');
      variant.alternatives.push_back(rest.substr(0, comma));
      MANTISSA_CHECK(!variant.alternatives.back().empty(), Corruption, where, ": ALT \"",
                     columns[4], "\" has an empty alternative; \".\" stands for a missing one");
      more = comma != std::string_view::npos;
      rest.remove_prefix(more ? comma + 1 : rest.size());
    }
  }
  return variant;
}

std::string with_info(std::string_view line, const VariantLine& variant, std::string_view fields) {
  if (fields.empty()) {
    return std::string(line);
  }
  const auto begin = static_cast<size_t>(variant.info.data() - line.data());
  const size_t end = begin + variant.info.size();
  std::string result(line.substr(0, begin));
  if (variant.info != ".") {
    result.append(variant.info);
    if (!variant.info.ends_with(';')) {
      result += ';';
    }
  }
  return result.append(fields).append(line.substr(end));
}

CheckedVariant check_variant(const Genome& genome, const VariantLine& variant) {
  CheckedVariant result;
  const auto [contig, renamed] = find_contig(genome, variant.chrom);
  result.renamed_contig = renamed;
  const std::optional<Unscored> against = check_reference(genome, contig, variant);
  if (variant.alternatives.empty()) {
    result.alleles.push_back({AlleleKind::reference, Unscored::no_alternative, {}});
    return result;
  }
  for (const std::string_view alt : variant.alternatives) {
    CheckedAllele& checked = result.alleles.emplace_back();
    if (const auto told = not_spelled_out(alt)) {
      checked = *told;
      continue;
    }
    if (!is_iupac(variant.reference)) {
      checked = {AlleleKind::unreadable, Unscored::unreadable_allele, {}};
      continue;
    }
    checked.kind = kind_of_text(variant.reference, alt);
    if (against) {
      checked.unscored = against;
    } else if (checked.kind == AlleleKind::reference) {
      checked.unscored = Unscored::same_as_reference;
    } else if (!is_definite(alt)) {
      checked.unscored = Unscored::ambiguous_alternative;
    } else {
      checked.allele = normalized(genome, *contig, variant.position - 1,
                                  bases_of(variant.reference), bases_of(alt));
    }
  }
  return result;
}

}  // namespace mantissa::genome
