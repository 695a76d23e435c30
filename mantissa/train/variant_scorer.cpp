#include "mantissa/train/variant_scorer.h"

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"
#include "mantissa/genome/allele_windows.h"
#include "mantissa/genome/variant.h"

namespace mantissa::train {
namespace {

using genome::AlleleWindows;
using genome::CheckedAllele;
using genome::CheckedVariant;
using genome::Unscored;
using genome::VariantLine;

// The values of a field of Number=A; empty texts are missing.
class Column {
 public:
  Column(const std::string& name, size_t count) : name_(name), values_(count) {}

  std::string& at(size_t i) { return values_[i]; }

  // "NAME=a,.,b", or nothing without any value.
  std::string text() const {
    std::string joined;
    bool any = false;
    for (const std::string& value : values_) {
      joined += joined.empty() ? "" : ",";
      joined += value.empty() ? "." : value;
      any = any || !value.empty();
    }
    return any ? concat(name_, '=', joined) : "";
  }

 private:
  const std::string& name_;
  std::vector<std::string> values_;
};

// By the change alone, so that it is the same in any file.
bool is_in_share(const VariantLine& variant, std::string_view alternative, double share) {
  const std::string key =
      concat(variant.chrom, '\t', variant.position, '\t', variant.reference, '\t', alternative);
  return static_cast<double>(xxh3(key) >> 11) * 0x1p-53 < share;
}

double markov_ratio(const genome::MarkovChain& chain, const AlleleWindows& windows) {
  double sum = 0;
  for (const genome::AlleleWindow& window : windows.strands) {
    sum += genome::log_ratio(chain.log_probabilities(window.reference),
                             chain.log_probabilities(window.alternative));
  }
  return sum / 2;
}

}  // namespace

std::string float_text(double value) {
  std::array<char, 32> text{};
  const auto [end, error] =
      std::to_chars(text.data(), text.data() + text.size(), static_cast<float>(value));
  MANTISSA_ASSERT(error == std::errc());
  return {text.data(), end};
}

std::string VariantScorer::annotate(std::string_view line, std::string_view where) const {
  const VariantLine variant = genome::parse_variant(line, where);
  const CheckedVariant checked = genome::check_variant(genome, variant);
  std::string info;
  const auto add = [&](const std::string& field) {
    info += info.empty() || field.empty() ? "" : ";";
    info += field;
  };
  if (checked.renamed_contig) {
    add(fields.renamed);
  }
  if (variant.alternatives.empty()) {
    add(fields.no_alternative);
    return genome::with_info(line, variant, info);
  }
  const size_t count = checked.alleles.size();
  Column llr(fields.llr, count);
  Column forward(fields.forward, count);
  Column reverse(fields.reverse, count);
  Column in_fp32(fields.fp32, count);
  Column by_markov(fields.markov, count);
  Column kind(fields.kind, count);
  Column reason(fields.reason, count);
  Column consequence(fields.consequence, count);
  for (size_t i = 0; i < count; ++i) {
    const CheckedAllele& allele = checked.alleles[i];
    kind.at(i) = to_string(allele.kind);
    if (allele.unscored) {
      reason.at(i) = to_string(*allele.unscored);
      continue;
    }
    if (const auto found =
            consequences == nullptr ? std::nullopt : consequences->of(allele.allele)) {
      consequence.at(i) = to_string(*found);
    }
    const AlleleWindows windows =
        genome::allele_windows(genome, allele.allele, scorer.window_bases());
    if (windows.unscored) {
      reason.at(i) = to_string(*windows.unscored);
      continue;
    }
    const AlleleScore score = scorer.score(windows);
    if (!std::isfinite(score.mean())) {
      reason.at(i) = to_string(Unscored::not_finite);
      continue;
    }
    llr.at(i) = float_text(score.mean());
    forward.at(i) = float_text(score.forward);
    reverse.at(i) = float_text(score.reverse);
    if (fp32 != nullptr && is_in_share(variant, variant.alternatives[i], fp32_share)) {
      const double mean = fp32->score(windows).mean();
      in_fp32.at(i) = std::isfinite(mean) ? float_text(mean) : "";
    }
    if (markov != nullptr) {
      by_markov.at(i) = float_text(markov_ratio(*markov, windows));
    }
  }
  for (const Column* column :
       {&kind, &llr, &forward, &reverse, &in_fp32, &by_markov, &consequence, &reason}) {
    add(column->text());
  }
  return genome::with_info(line, variant, info);
}

}  // namespace mantissa::train
