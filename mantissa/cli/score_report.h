#pragma once

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "mantissa/train/score_summary.h"

namespace mantissa::cli {

/// What `mantissa score` says of its model and its baseline.
struct ScoredBy {
  std::string checkpoint;
  std::string precision;
  std::string objective;
  int64_t context = 0;
  std::optional<int> markov_order;
  std::optional<uint64_t> coding;            // coding sequences that were read
  std::optional<uint64_t> coding_left_out;   // with a stop inside
  std::optional<uint64_t> coding_elsewhere;  // on contigs that the FASTA lacks
};

std::string score_text(const ScoredBy& by, const train::ScoreSummary& summary,
                       const std::optional<train::ScoreLabels>& labels);

nlohmann::ordered_json score_json(const ScoredBy& by, const train::ScoreSummary& summary,
                                  const std::optional<train::ScoreLabels>& labels);

}  // namespace mantissa::cli
