#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "mantissa/base/api.h"
#include "mantissa/base/bootstrap.h"
#include "mantissa/genome/consequence.h"
#include "mantissa/train/score_fields.h"

namespace mantissa::train {

/// Two consequences to be told apart by the score: the less harmful and the more harmful one.
struct ScoreLabels {
  genome::Consequence benign = genome::Consequence::synonymous;
  genome::Consequence harmful = genome::Consequence::nonsense;
};

/// `synonymous,nonsense`. Throws InvalidArgument when it is not two different consequences.
MANTISSA_API ScoreLabels parse_score_labels(const std::string& text);

/// How scores of one precision order the changes beside those in FP32.
struct ScoreAgreement {
  uint64_t pairs = 0;
  double spearman = 0;            // NaN for fewer than two
  uint64_t snv_pairs = 0;         // single bases alone: other kinds have ratios of another size,
  double snv_spearman = 0;        // which raises the agreement of all
  double largest_difference = 0;  // nats
};

/// The area under the ROC curve with its 95 % interval (base/rank_statistics.h), of a harmful
/// change having the lower ratio.
struct ScoreSeparation {
  uint64_t benign = 0;
  uint64_t harmful = 0;
  Estimate model;
  std::optional<Estimate> markov;  // of the same changes
};

/// What is in a VCF file that was scored. Each alternative, and each record without one, is scored
/// or has a reason.
struct ScoreSummary {
  uint64_t records = 0;
  uint64_t scored_records = 0;     // all of their alternatives
  uint64_t part_records = 0;       // some
  uint64_t explained_records = 0;  // none
  uint64_t alternatives = 0;       // and records without one
  uint64_t scored = 0;
  uint64_t renamed = 0;                     // records on contigs that the FASTA names otherwise
  std::map<std::string, uint64_t> kinds;    // of all alternatives
  std::map<std::string, uint64_t> reasons;  // of those without a score
  std::map<std::string, uint64_t> consequences;  // of those with a score
  std::optional<ScoreAgreement> agreement;       // when any was scored in FP32 too
  std::optional<ScoreSeparation> separation;     // when labels were given
};

/// Reads it out of the file. Throws Corruption when an alternative has neither score nor reason.
MANTISSA_API ScoreSummary summarize_scores(const std::filesystem::path& vcf,
                                           const ScoreFields& fields,
                                           const std::optional<ScoreLabels>& labels);

}  // namespace mantissa::train
