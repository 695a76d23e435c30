#include "mantissa/cli/score_report.h"

#include <cmath>
#include <sstream>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/base/json_number.h"
#include "mantissa/genome/variant.h"
#include "mantissa/report/text_table.h"

namespace mantissa::cli {
namespace {

using nlohmann::ordered_json;

std::string fixed(double value) {
  std::ostringstream out;
  out.precision(4);
  out << std::fixed << value;
  return out.str();
}

std::string area_text(const Estimate& area) {
  if (std::isnan(area.value)) {
    return "none: both need one";
  }
  return std::isnan(area.low) ? concat(fixed(area.value), ", no interval: both need two")
                              : concat(fixed(area.value), " (95 % interval ", fixed(area.low),
                                       " to ", fixed(area.high), ")");
}

// The sentence behind a reason's name.
std::string sentence_of(const std::string& name) {
  for (int i = 0; i <= static_cast<int>(genome::Unscored::not_finite); ++i) {
    const auto reason = static_cast<genome::Unscored>(i);
    if (to_string(reason) == name) {
      return std::string(explain(reason));
    }
  }
  return "";
}

ordered_json area_json(const Estimate& area) {
  return {{"auroc", json_number(area.value)},
          {"low", json_number(area.low)},
          {"high", json_number(area.high)}};
}

template <typename Value>
ordered_json or_null(const std::optional<Value>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

}  // namespace

std::string score_text(const ScoredBy& by, const train::ScoreSummary& summary,
                       const std::optional<train::ScoreLabels>& labels) {
  std::ostringstream out;
  out << by.checkpoint << ", " << by.objective << ", " << by.precision << ", context " << by.context
      << ": log-likelihood ratios in nats, mean of both strands\n";
  out << "records: " << summary.records << " = " << summary.scored_records << " scored + "
      << summary.part_records << " in part + " << summary.explained_records << " explained\n";
  out << "alternatives: " << summary.alternatives << " = " << summary.scored << " scored + "
      << summary.alternatives - summary.scored << " explained\n";
  if (summary.renamed > 0) {
    out << "records whose contig the FASTA has with or without \"chr\": " << summary.renamed
        << "\n";
  }
  std::vector<std::vector<std::string>> kinds = {{"kind", "alternatives"}};
  for (const auto& [kind, count] : summary.kinds) {
    kinds.push_back({kind, std::to_string(count)});
  }
  out << "\n" << report::text_table(kinds);
  if (!summary.reasons.empty()) {
    out << "\nnot scored\n";
    for (const auto& [reason, count] : summary.reasons) {
      out << "  " << count << "  " << reason << ": " << sentence_of(reason) << "\n";
    }
  }
  if (summary.agreement) {
    const train::ScoreAgreement& agreement = *summary.agreement;
    out << "\nSpearman's correlation with FP32: " << fixed(agreement.spearman) << " of "
        << agreement.pairs << " alternatives, " << fixed(agreement.snv_spearman) << " of "
        << agreement.snv_pairs << " single bases; largest difference "
        << fixed(agreement.largest_difference) << " nats\n";
  }
  if (by.coding) {
    out << "\ncoding sequences: " << *by.coding;
    if (*by.coding_left_out > 0) {
      out << "; left out with a stop inside: " << *by.coding_left_out;
    }
    if (*by.coding_elsewhere > 0) {
      out << "; on contigs that the FASTA lacks: " << *by.coding_elsewhere;
    }
    out << "\n";
    for (const auto& [consequence, count] : summary.consequences) {
      out << "  " << count << "  " << consequence << "\n";
    }
  }
  if (summary.separation) {
    const train::ScoreSeparation& separation = *summary.separation;
    out << "AUROC, " << separation.harmful << " " << to_string(labels->harmful) << " below "
        << separation.benign << " " << to_string(labels->benign) << ": "
        << area_text(separation.model) << "\n";
    out << "  best Markov model";
    if (separation.markov) {
      out << ", order " << *by.markov_order << ": " << area_text(*separation.markov) << "\n";
    } else {
      out << ": none: " << (by.markov_order ? "nothing is labelled" : "the run holds nothing out")
          << "\n";
    }
  }
  return out.str();
}

ordered_json score_json(const ScoredBy& by, const train::ScoreSummary& summary,
                        const std::optional<train::ScoreLabels>& labels) {
  ordered_json json;
  json["checkpoint"] = by.checkpoint;
  json["objective"] = by.objective;
  json["precision"] = by.precision;
  json["context"] = by.context;
  json["unit"] = "nats";
  json["records"] = {{"all", summary.records},
                     {"scored", summary.scored_records},
                     {"in_part", summary.part_records},
                     {"explained", summary.explained_records},
                     {"renamed_contig", summary.renamed}};
  json["alternatives"] = {{"all", summary.alternatives}, {"scored", summary.scored}};
  json["kinds"] = summary.kinds;
  json["reasons"] = summary.reasons;
  json["agreement"] = nullptr;
  if (summary.agreement) {
    json["agreement"] = {{"pairs", summary.agreement->pairs},
                         {"spearman", json_number(summary.agreement->spearman)},
                         {"snv_pairs", summary.agreement->snv_pairs},
                         {"snv_spearman", json_number(summary.agreement->snv_spearman)},
                         {"largest_difference", summary.agreement->largest_difference}};
  }
  json["coding"] = nullptr;
  if (by.coding) {
    json["coding"] = {{"sequences", *by.coding},
                      {"stop_inside", *by.coding_left_out},
                      {"unknown_contig", *by.coding_elsewhere},
                      {"consequences", summary.consequences}};
  }
  json["separation"] = nullptr;
  if (summary.separation) {
    const train::ScoreSeparation& separation = *summary.separation;
    json["separation"] = {
        {"benign", to_string(labels->benign)},
        {"num_benign", separation.benign},
        {"harmful", to_string(labels->harmful)},
        {"num_harmful", separation.harmful},
        {"model", area_json(separation.model)},
        {"markov", separation.markov ? area_json(*separation.markov) : ordered_json(nullptr)},
        {"markov_order", or_null(by.markov_order)}};
  }
  return json;
}

}  // namespace mantissa::cli
