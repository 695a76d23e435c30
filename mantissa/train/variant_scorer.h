#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/genome/consequence.h"
#include "mantissa/genome/genome.h"
#include "mantissa/genome/markov_chain.h"
#include "mantissa/train/allele_scorer.h"
#include "mantissa/train/score_fields.h"

namespace mantissa::train {

/// Gives a record of a VCF file its scores, or says why it has none. All parts outlive it.
struct MANTISSA_API VariantScorer {
  const genome::Genome& genome;
  const AlleleScorer& scorer;
  const ScoreFields& fields;
  const AlleleScorer* fp32 = nullptr;                  // the same weights in FP32, to compare with
  double fp32_share = 1;                               // of the alternatives that it scores too
  const genome::Consequences* consequences = nullptr;  // or none
  const genome::MarkovChain* markov = nullptr;         // or none

  /// The record with its fields. What is scored in FP32 too is chosen by CHROM, POS, REF and ALT
  /// alone. Throws Corruption that begins with `where` for what is no record.
  std::string annotate(std::string_view line, std::string_view where) const;
};

/// The number as a Float of VCF: the fewest digits from which the same FP32 number is read.
MANTISSA_API std::string float_text(double value);

}  // namespace mantissa::train
