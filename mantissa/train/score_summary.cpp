#include "mantissa/train/score_summary.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/base/rank_statistics.h"
#include "mantissa/genome/variant.h"
#include "mantissa/genome/variant_reader.h"

namespace mantissa::train {
namespace {

using genome::VariantLine;

// Looks up a field of INFO: nothing when it is not there, "" for a flag.
std::optional<std::string_view> find(std::string_view info, std::string_view name) {
  while (!info.empty()) {
    const size_t end = std::min(info.find(';'), info.size());
    const std::string_view field = info.substr(0, end);
    if (field == name) {
      return "";
    }
    if (field.starts_with(name) && field.substr(name.size()).starts_with('=')) {
      return field.substr(name.size() + 1);
    }
    info.remove_prefix(std::min(end + 1, info.size()));
  }
  return std::nullopt;
}

// A value for each alternative, "." where there is none.
std::vector<std::string_view> values_of(const VariantLine& variant, std::string_view name) {
  std::vector<std::string_view> values(variant.alternatives.size(), ".");
  std::string_view rest = find(variant.info, name).value_or("");
  for (std::string_view& value : values) {
    if (rest.empty()) {
      break;
    }
    const size_t comma = std::min(rest.find(','), rest.size());
    value = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return values;
}

std::optional<double> number(std::string_view text, const std::string& where) {
  if (text == ".") {
    return std::nullopt;
  }
  float value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  MANTISSA_CHECK(error == std::errc() && stop == text.data() + text.size(), Corruption, where,
                 ": \"", text, "\" is no number; score the file again");
  return value;
}

struct Pairs {
  std::vector<double> a;
  std::vector<double> b;

  void add(double x, double y) {
    a.push_back(x);
    b.push_back(y);
  }
};

// Scores with the sign turned, so that harmful ones are the greater.
struct Labelled {
  std::vector<double> benign;
  std::vector<double> harmful;

  void add(bool is_harmful, double ratio) { (is_harmful ? harmful : benign).push_back(-ratio); }
  Estimate area() const { return auroc(harmful, benign); }
};

class Collector {
 public:
  Collector(const ScoreFields& fields, const std::optional<ScoreLabels>& labels)
      : fields_(fields), labels_(labels) {}

  void add(const VariantLine& variant, const std::string& where) {
    ++result_.records;
    result_.renamed += find(variant.info, fields_.renamed) ? 1 : 0;
    if (variant.alternatives.empty()) {
      MANTISSA_CHECK(find(variant.info, fields_.no_alternative), Corruption, where,
                     ": has no mark of scoring; score the file again");
      ++result_.alternatives;
      ++result_.explained_records;
      ++result_.kinds["reference"];
      ++result_.reasons[std::string(to_string(genome::Unscored::no_alternative))];
      return;
    }
    const uint64_t scored = result_.scored;
    add_alternatives(variant, where);
    const uint64_t own = result_.scored - scored;
    ++(own == variant.alternatives.size() ? result_.scored_records
       : own > 0                          ? result_.part_records
                                          : result_.explained_records);
  }

  ScoreSummary finish() {
    if (!all_.a.empty()) {
      ScoreAgreement& agreement = result_.agreement.emplace();
      agreement.pairs = all_.a.size();
      agreement.spearman = spearman(all_.a, all_.b);
      agreement.snv_pairs = snv_.a.size();
      agreement.snv_spearman = spearman(snv_.a, snv_.b);
      for (size_t i = 0; i < all_.a.size(); ++i) {
        agreement.largest_difference =
            std::max(agreement.largest_difference, std::abs(all_.a[i] - all_.b[i]));
      }
    }
    if (labels_) {
      ScoreSeparation& separation = result_.separation.emplace();
      separation.benign = by_model_.benign.size();
      separation.harmful = by_model_.harmful.size();
      separation.model = by_model_.area();
      const bool has_markov = !by_markov_.benign.empty() || !by_markov_.harmful.empty();
      if (has_markov) {
        separation.markov = by_markov_.area();
      }
    }
    return std::move(result_);
  }

 private:
  void add_alternatives(const VariantLine& variant, const std::string& where) {
    const auto kinds = values_of(variant, fields_.kind);
    const auto reasons = values_of(variant, fields_.reason);
    const auto ratios = values_of(variant, fields_.llr);
    const auto in_fp32 = values_of(variant, fields_.fp32);
    const auto by_markov = values_of(variant, fields_.markov);
    const auto consequences = values_of(variant, fields_.consequence);
    for (size_t i = 0; i < variant.alternatives.size(); ++i) {
      ++result_.alternatives;
      ++result_.kinds[std::string(kinds[i])];
      const std::optional<double> ratio = number(ratios[i], where);
      MANTISSA_CHECK(ratio.has_value() != (reasons[i] != "."), Corruption, where, ": ALT \"",
                     variant.alternatives[i], "\" has ", ratio ? "a score and a reason" : "neither",
                     ratio ? "" : " score nor reason", "; score the file again");
      if (!ratio) {
        ++result_.reasons[std::string(reasons[i])];
        continue;
      }
      ++result_.scored;
      if (consequences[i] != ".") {
        ++result_.consequences[std::string(consequences[i])];
      }
      if (const auto other = number(in_fp32[i], where)) {
        all_.add(*ratio, *other);
        if (kinds[i] == to_string(genome::AlleleKind::snv)) {
          snv_.add(*ratio, *other);
        }
      }
      if (labels_ && (consequences[i] == to_string(labels_->benign) ||
                      consequences[i] == to_string(labels_->harmful))) {
        const bool is_harmful = consequences[i] == to_string(labels_->harmful);
        by_model_.add(is_harmful, *ratio);
        if (const auto markov = number(by_markov[i], where)) {
          by_markov_.add(is_harmful, *markov);
        }
      }
    }
  }

  const ScoreFields& fields_;
  std::optional<ScoreLabels> labels_;
  ScoreSummary result_;
  Pairs all_;
  Pairs snv_;
  Labelled by_model_;
  Labelled by_markov_;
};

}  // namespace

ScoreLabels parse_score_labels(const std::string& text) {
  const size_t comma = text.find(',');
  MANTISSA_CHECK(comma != std::string::npos, InvalidArgument, "score: labels \"", text,
                 "\"; give two consequences, the harmful one last, as synonymous,nonsense");
  const ScoreLabels labels{genome::parse_consequence(text.substr(0, comma)),
                           genome::parse_consequence(text.substr(comma + 1))};
  MANTISSA_CHECK(labels.benign != labels.harmful, InvalidArgument, "score: labels \"", text,
                 "\" are the same; give two consequences, as synonymous,nonsense");
  return labels;
}

ScoreSummary summarize_scores(const std::filesystem::path& vcf, const ScoreFields& fields,
                              const std::optional<ScoreLabels>& labels) {
  genome::VariantReader reader(vcf);
  Collector collector(fields, labels);
  for (std::string line; reader.next(line);) {
    collector.add(genome::parse_variant(line, reader.where()), reader.where());
  }
  return collector.finish();
}

}  // namespace mantissa::train
